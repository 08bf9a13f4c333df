// What an operator does. It takes the admin's token, which is asked for at each visit and kept nowhere.

import { el } from "/static/dom.js";

export const admin_token = () => el("input", { type: "password", "aria-label": "admin's token", placeholder: "admin's token",
  autocomplete: "off", maxlength: "300" });

// Sends an order, and returns what is wrong with it; empty: it was taken.
export async function act(path, token, order) {
  const answer = await fetch(path, { method: "POST", body: JSON.stringify(order),
    headers: { "content-type": "application/json", authorization: `Bearer ${token}` } }).catch(() => null);
  if (answer?.ok) return "";
  const told = answer && (await answer.json().catch(() => ({}))).detail;
  return answer ? typeof told === "string" ? told : `refused (${answer.status})` : "no answer";
}
