// The compiled core (hoyer.wasm, from native/binding/wasm.cpp) as JavaScript calls it: one vector of doubles at a time.

const RULES = { fixed: 0, keep: 1, nearest: 2, free: 3 };
const ACTIVE = ["both", "l2", "l1", "l1", "none"];
const RECORD = ["shift", "scale", "supportSize", "evaluations", "unique", "l1", "l2", "active"];

export async function load(url) {
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(`${url}: ${answer.status}`);
  // Compiled from bytes: some file servers do not know the type that compiling from a stream asks for.
  const { instance } = await WebAssembly.instantiate(await answer.arrayBuffer(), system());
  instance.exports._initialize?.();
  return new Core(instance.exports);
}

// The module may only ask for files, to print why it gives up; there are none.
function system() {
  const noFile = () => 8;
  return { wasi_snapshot_preview1: { fd_close: noFile, fd_seek: noFile, fd_write: noFile } };
}

class Core {
  #wasm;
  #room = 0;
  #places = {};

  constructor(wasm) {
    this.#wasm = wasm;
  }

  // As hoyer.solve(x, ...), with the same names: the nearest point, and what is told about it.
  solve(x, options) {
    const { x: from, out, record } = this.#reserve(x.length);
    this.#doubles(from, x.length).set(x);
    if (!this.#wasm.project(from, out, x.length, ...numbers(options), record)) {
      throw new RangeError("the entries must be finite numbers");
    }
    return { value: this.#doubles(out, x.length).slice(), ...named(this.#doubles(record, RECORD.length)) };
  }

  sparseness(x) {
    const { x: from } = this.#reserve(x.length);
    this.#doubles(from, x.length).set(x);
    return this.#wasm.sparseness(from, x.length);
  }

  // Milliseconds for projecting x, which need not be copied again: the least of so many times.
  time(x, options, times) {
    this.solve(x, options);
    const { x: from, out, record } = this.#places;
    const given = numbers(options);
    const once = () => {
      const start = performance.now();
      this.#wasm.project(from, out, x.length, ...given, record);
      return performance.now() - start;
    };
    return Math.min(...Array.from({ length: times }, once));
  }

  // Room for vectors of n entries: it grows, and is kept.
  #reserve(n) {
    if (n > this.#room) {
      for (const place of Object.values(this.#places)) this.#wasm.release(place);
      const bytes = { x: 8 * n, out: 8 * n, record: 8 * RECORD.length };
      for (const [name, size] of Object.entries(bytes)) this.#places[name] = this.#wasm.allocate(size);
      this.#room = n;
    }
    return this.#places;
  }

  #doubles(place, length) {
    return new Float64Array(this.#wasm.memory.buffer, place, length);
  }
}

// What the core is called with; NaN is what was not given.
function numbers(options) {
  const { sparseness, l1, l2, nonnegative = false, only_increase = false, at_most = false } = options;
  const norm = typeof l2 === "number" ? l2 : sparseness === undefined ? NaN : 1;
  return [sparseness ?? NaN, l1 ?? NaN, norm, ruleOf(options), nonnegative, only_increase, at_most];
}

function ruleOf({ sparseness, l2 }) {
  if (typeof l2 === "string") return RULES[l2];
  return sparseness === undefined && l2 === undefined ? RULES.free : RULES.fixed;
}

function named(record) {
  const result = Object.fromEntries(RECORD.map((name, i) => [name, record[i]]));
  return { ...result, unique: result.unique === 1, active: ACTIVE[result.active] };
}
