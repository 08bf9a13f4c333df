"""The study of a second judge: our plans beside those that AISimulate recommends, both scored in its simulator and in
ours."""
