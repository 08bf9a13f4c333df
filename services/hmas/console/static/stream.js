// The live view of a page: frames are JSON Merge Patches (RFC 7396). Names of tenants and engines are keys, so objects
// have no prototype that a name could reach.

const plain = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

export function merge(old, patch) {
  const merged = Object.assign(Object.create(null), old);
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete merged[key];
    else merged[key] = plain(value) ? merge(plain(merged[key]) ? merged[key] : {}, value) : value;
  }
  return merged;
}

// Calls `show(view, now_s)` with each new view and `lost(status)` when the stream breaks; the browser tries again.
// Returns a function that ends it.
export function follow(page, choice, show, lost) {
  const query = new URLSearchParams({ page, choice });
  let view = {};
  let source = null;
  let again = 0;
  const open = () => {
    source = new EventSource(`/api/stream?${query}`);
    source.onopen = () => { view = {}; };
    source.onmessage = (event) => {
      const frame = JSON.parse(event.data);
      view = merge(view, frame.patch);
      show(view, frame.now_s);
    };
    source.onerror = () => {
      source.close();
      lost();
      again = setTimeout(open, 1000);
    };
  };
  open();
  return () => { clearTimeout(again); source.close(); };
}
