// Shows the data of a trace, or of two beside each other. It computes no number: bits, texts and
// accounts come from Python.
//
// data.sides: for each trace an object; the listing, memory and barriers are those of the first
// data.differences: [warp, number of the step, sentence, part, row, column] for each tile that
// differs, in their order; row and column of its first element
// data.exact: by type and bits, all digits of the numbers that differ
// data.verdict: whether there are any; "" of one trace
//
// Of a side:
// warps: how many a block has
// steps: [warp, number, path, kind, loops, tiles read, tiles written, accounts or null]
// looks: the names of looks. tiles: [label, part, type, name, size and place, note, change, rows,
// columns, grid, looks, buffer, ranges, strip]; looks has a digit for each element, its place in
// data.looks; strip says the ranges in words
// grids: for each element the place of its number in data.numbers[type], [bits, text]
// accounts: [result, steps], each step [title, sentence, places in data.lines]
// lines: [name, digits, lost, remark, exponent, numbers, kind]
"use strict";

const WRAP = 16; // columns in which one long row is written
const $ = (id) => document.getElementById(id);

// An element with attributes and children; texts are texts, never markup.
function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "rect"].includes(tag);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

async function read() {
  const packed = Uint8Array.from(atob($("data").textContent), (c) => c.charCodeAt(0));
  const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(unpacked).text());
}

const keyOf = ({ warp, number }) => `${warp} ${number}`;

// What one trace has, with its steps by warp and number.
function sideOf(data) {
  const tileOf = (number) => {
    const [label, part, type, name, size, note, change, rows, cols, grid, looks, buffer, ranges,
      strip] = data.tiles[number];
    return { label, part, type, name, size, note, change, rows, cols, buffer, ranges, strip,
      cells: data.grids[grid].map((place) => data.numbers[type][place]),
      looks: [...looks].map((look) => data.looks[look]) };
  };
  const steps = data.steps.map(([warp, number, path, kind, loops, reads, writes, accounts]) => ({
    warp, number, path, kind, loops, accounts,
    reads: reads.map(tileOf), writes: writes.map(tileOf),
  }));
  return { ...data, steps, at: new Map(steps.map((step) => [keyOf(step), step])), tables: {} };
}

function start({ sides: given, differences, exact, verdict }) {
  const sides = given.map(sideOf);
  const data = sides[0];
  const steps = data.steps;
  const beside = sides.length > 1;
  // By step, the sentences that tell what differs.
  const differing = new Map();
  for (const [warp, number, text, part, row, column] of differences) {
    const key = keyOf({ warp, number });
    differing.set(key, [...(differing.get(key) ?? []), { text, part, row, column }]);
  }
  const warps = [...new Set(steps.map((step) => step.warp))];
  // As the program counts its warps: in their block.
  const blockOf = (warp) => Math.floor(warp / data.warps);
  const someBlocks = warps.some((warp) => blockOf(warp) > 0);
  const nameOf = (warp) => (someBlocks ? `${warp % data.warps} of block ${blockOf(warp)}` : `${warp}`);
  // A line of the listing: its text with its path, and the paper's line, such as Alg. 6 line 7.
  const parted = (line) => line.split(/ {2,}(?=Alg\. )/);
  // The text of each step, without its path, and without the remarks behind it.
  const lines = new Map(data.listing.map(([path, line]) =>
    [path, line.slice(path.length).trim().split(/ {2,}/)[0]]));
  let mine = [];          // the steps of the chosen warp
  let at = 0;             // the place of the step that is shown
  let chosen = [0, 0];    // the output that is explained

  // --- Going about --------------------------------------------------------------------------

  function choose(warp) {
    mine = steps.filter((step) => step.warp === warp);
    $("slider").max = mine.length - 1;
    go(at);
  }

  function go(place) {
    at = Math.max(0, Math.min(place, mine.length - 1));
    show();
  }

  // The next step that differs, in this warp or, after its last, in another; or the one before.
  function differ(forwards) {
    const there = steps.map((step, place) => [step, place]).filter(([step]) =>
      differing.has(keyOf(step)));
    if (!there.length) return;
    const own = (step) => warps.indexOf(step.warp);
    const order = (one, two) => own(one) - own(two) || one.number - two.number;
    const sorted = there.map(([step]) => step).sort(order);
    const now = mine[at];
    const rest = forwards ? sorted.filter((step) => order(step, now) > 0)
      : sorted.filter((step) => order(step, now) < 0).reverse();
    const found = rest[0] ?? (forwards ? sorted[0] : sorted[sorted.length - 1]);
    const output = differing.get(keyOf(found)).find(({ part }) => part === "d");
    if (output) chosen = [output.row, output.column];
    visit(found);
    scrollTo(0, 0);
  }

  function visit(step) {
    if (step.warp !== mine[at].warp) {
      $("warp").value = step.warp;
      mine = steps.filter((one) => one.warp === step.warp);
      $("slider").max = mine.length - 1;
    }
    go(mine.indexOf(step));
  }

  // The next step at or below a line of the listing; from the end on, the first again.
  function lead(path) {
    const here = (step) => `${step.path}.`.startsWith(`${path}.`);
    const later = mine.findIndex((step, place) => place > at && here(step));
    const found = later < 0 ? mine.findIndex(here) : later;
    if (found >= 0) go(found);
  }

  // --- Showing ------------------------------------------------------------------------------

  function show() {
    const step = mine[at];
    $("slider").value = at;
    $("begin").disabled = $("back").disabled = at === 0;
    $("next").disabled = $("end").disabled = at === mine.length - 1;
    const inGrid = document.activeElement.closest(".grid") !== null;
    const loops = step.loops.map(([name, value]) => `, ${name} = ${value}`).join("");
    // The path of a step outside loops is its index.
    const path = step.path === String(step.number) ? "" : `: ${step.path}`;
    const text = `step ${step.number} of ${mine[mine.length - 1].number}${path}${loops}`;
    $("slider").setAttribute("aria-valuetext", text);
    $("where").textContent = `${text}. ${step.writes.map(inWords).join(" ")}`;
    if (beside) showDifference(step);
    showListing(step);
    showTiles(step);
    showAccount(step);
    showMemory();
    showTime();
    // The cells are new; the keys stay where they were.
    if (inGrid) ($("tiles").querySelector(".chosen") ?? $("slider")).focus();
  }

  function showDifference(step) {
    const found = differing.get(keyOf(step)) ?? [];
    const other = sides[1].at.get(keyOf(step));
    const first = found.length && differing.keys().next().value === keyOf(step);
    const lead = first ? "The first difference: " : "They differ: ";
    $("difference").textContent = !other ? `${sides[1].title} has no such step.`
      : found.length ? `${lead}${found.map(({ text }) => text).join(" ")}` : "No bit differs at this step.";
    $("difference").classList.toggle("differs", found.length > 0);
  }

  function inWords(tile) {
    return `${tile.label}: ${tile.change}.`;
  }

  function showListing(step) {
    for (const button of $("listing").querySelectorAll("button")) {
      const here = button.dataset.path === step.path;
      button.toggleAttribute("aria-current", here);
      if (!here) continue;
      button.setAttribute("aria-current", "step");
      $("line").textContent = button.title;
      const box = $("listing-scroll");
      const top = button.offsetTop - box.offsetTop;
      if (top < box.scrollTop || top + button.offsetHeight > box.scrollTop + box.clientHeight) {
        const above = Math.floor(box.clientHeight / button.offsetHeight / 2);
        box.scrollTop = top - above * button.offsetHeight;
      }
    }
  }

  function showTiles(step) {
    const columns = sides.map((side) => {
      const own = side.at.get(keyOf(step));
      side.tables = {};
      const shown = own ? figures(side, own) : [make("p", {}, "This step is not in this trace.")];
      if (!shown.length) shown.push(make("p", {}, "This step touches no tile of this warp."));
      if (!beside) return shown;
      return [make("section", { class: "side", "aria-label": `Tiles of ${side.title}` },
        make("h3", {}, side.title), make("div", { class: "tiles" }, ...shown))];
    });
    $("tiles").replaceChildren(...columns.flat());
    // Both sides show the first cell that differs.
    for (const box of $("tiles").querySelectorAll(".scroll")) {
      const cell = box.querySelector(".differs");
      if (cell) box.scrollLeft = cell.offsetLeft - (box.clientWidth - cell.offsetWidth) / 2;
    }
  }

  function figures(side, step) {
    const other = sides.find((one) => one !== side)?.at.get(keyOf(step));
    const shown = ["reads", "writes"].flatMap((verb) => step[verb].map((tile) => {
      const twin = other?.[verb].find(({ part, label }) => part === tile.part
        && label === tile.label);
      return figure(side, tile, verb, step, twin);
    }));
    // Those that differ are first.
    const differs = (one) => one.querySelector(".differs") !== null;
    return [...shown.filter(differs), ...shown.filter((one) => !differs(one))];
  }

  // twin: the same tile of the other trace, if it has it.
  function figure(side, tile, verb, step, twin) {
    const title = `${verb} ${tile.name}`;
    const change = tile.change && !tile.note ? `, ${tile.change}` : "";
    const caption = make("figcaption", {}, make("strong", {}, title), ` ${tile.size}${change}`);
    if (tile.note) {
      return make("figure", {}, caption, make("p", { class: "quiet" }, tile.note));
    }
    const output = tile.part === "d" && step.accounts !== null;
    const width = tile.rows === 1 ? WRAP : tile.cols;
    const rows = [];
    const whose = beside ? `${side.title}, ${title}` : title;
    const label = output ? `${whose}. Arrow keys choose the output that is explained` : whose;
    const table = make("table", { class: "grid", "aria-label": label, role: output && "grid" });
    for (let first = 0; first < tile.cells.length; first += width) {
      const name = tile.rows === 1 && tile.ranges.length === 1 ? tile.ranges[0][0] + first
        : first / width;
      const row = make("tr", {}, make("th", { scope: "row" }, String(name)));
      const cells = tile.cells.slice(first, first + width).map((number, column) =>
        cellOf(tile, first + column, number, twin));
      row.append(...cells);
      table.append(row);
      rows.push(cells);
    }
    if (step.kind === "mma") side.tables[tile.part] = rows;
    if (output) listen(rows);
    const left = tile.rows * tile.cols - tile.cells.length;
    const box = make("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": whose },
      table);
    const more = left ? [make("p", { class: "quiet" }, `${left} more elements are not shown.`)] : [];
    return make("figure", {}, caption, box, ...more);
  }

  function cellOf(tile, place, [bits, text], twin) {
    const look = tile.looks[place];
    const names = [look];
    let told = `${text}, bits ${bits}`;
    const theirs = twin?.cells[place];
    let decimal = text;
    if (theirs && theirs[0] !== bits && look !== "outside") {
      names.push("differs");
      told += `; the other has ${theirs[1]}, bits ${theirs[0]}`;
      if (theirs[1] === text) decimal = exact[tile.type][bits];
    }
    const shown = look === "outside" ? "·" : $("hex").checked ? bits : decimal;
    return make("td", { class: names.join(" "), title: told }, shown);
  }

  // --- The account of an output -------------------------------------------------------------

  function listen(rows) {
    rows.forEach((cells, row) => cells.forEach((cell, column) => {
      cell.addEventListener("mouseenter", () => explain(row, column));
      cell.addEventListener("focus", () => explain(row, column));
      cell.addEventListener("click", () => cell.focus());
      cell.addEventListener("keydown", (event) => {
        const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
        const move = moves[event.key];
        if (!move || event.altKey || event.ctrlKey || event.metaKey) return;
        event.preventDefault();
        event.stopPropagation();
        rows[row + move[0]]?.[column + move[1]]?.focus();
      });
    }));
  }

  function explain(row, column) {
    chosen = [row, column];
    showAccount(mine[at]);
  }

  function showAccount(step) {
    const both = sides.map((side) => [side, side.at.get(keyOf(step))]).filter(([, own]) =>
      own && own.accounts !== null);
    $("account").hidden = !both.length;
    if (!both.length) return;
    const shape = both[0][0].tables.d;
    const row = Math.min(chosen[0], shape.length - 1);
    const column = Math.min(chosen[1], shape[0].length - 1);
    $("account-head").textContent = `Row ${row}, column ${column}`;
    $("account-body").replaceChildren(...both.map(([side, own]) => {
      mark(side.tables, row, column);
      const account = side.accounts[own.accounts[row * shape[0].length + column]];
      const result = account ? account[0] : "not explained in this page";
      if (!beside) $("account-head").textContent += `: ${result}`;
      const head = beside ? [make("h3", {}, `${side.title}: ${result}`)] : [];
      return make("div", { class: beside && "side" }, ...head,
        make("p", {}, side.words && `${side.words}.`),
        ...(account ? account[1].flatMap((one) => stepOf(side, one)) : []));
    }));
  }

  function mark(tables, row, column) {
    for (const old of Object.values(tables).flat(2)) {
      old.classList.remove("marked", "chosen");
    }
    tables.a[row].forEach((cell) => cell.classList.add("marked"));
    tables.b.forEach((cells) => cells[column].classList.add("marked"));
    tables.c[row][column].classList.add("marked");
    for (const cell of tables.d.flat()) cell.setAttribute("tabindex", "-1");
    tables.d[row][column].classList.add("chosen");
    tables.d[row][column].setAttribute("tabindex", "0");
  }

  function stepOf(side, [title, sentence, places]) {
    const head = make("p", {}, make("strong", {}, `${title}. `), sentence);
    if (!places.length) return [head];
    const names = ["term", "digits", "remark", "exponent", "numbers"];
    const header = make("tr", {}, ...names.map((name) => make("th", { scope: "col" }, name)));
    const rows = places.map((place) => {
      const [name, digits, lost, remark, exponent, numbers, kind] = side.lines[place];
      const cut = lost ? [make("del", {}, `[${lost}]`)] : [];
      const rest = kind === "term" ? [remark, exponent, numbers].map((text) => make("td", {}, text))
        : [make("td", { colspan: "3" }, remark)];
      return make("tr", { class: kind }, make("th", { scope: "row" }, name),
        make("td", {}, digits, ...cut), ...rest);
    });
    const table = make("table", {}, make("thead", {}, header), make("tbody", {}, ...rows));
    return [head, make("div",
      { class: "scroll", role: "region", tabindex: "0",
        "aria-label": beside ? `${side.title}: ${title}` : title }, table)];
  }

  // --- Memory and barriers ------------------------------------------------------------------

  // By buffer: the elements that the steps of this warp touch, those of each kind up to this step.
  function touches() {
    const found = {};
    mine.forEach((step, place) => {
      for (const [verb, tiles] of [["reads", step.reads], ["writes", step.writes]]) {
        for (const { buffer, ranges, strip } of tiles) {
          if (!buffer || !ranges.length) continue;
          found[buffer] ??= { low: Infinity, high: 0, touched: [], reads: [], writes: [], said: [] };
          const one = found[buffer];
          one.low = Math.min(one.low, ranges[0][0]);
          one.high = Math.max(one.high, ranges[ranges.length - 1][1]);
          if (place <= at) one[place === at ? verb : "touched"].push(...ranges);
          if (place === at) one.said.push(strip);
        }
      }
    });
    return found;
  }

  // Ranges in order, those that meet as one.
  function merged(ranges) {
    const result = [];
    for (const [begin, end] of [...ranges].sort((x, y) => x[0] - y[0])) {
      const last = result[result.length - 1];
      if (last && begin <= last[1]) last[1] = Math.max(last[1], end);
      else result.push([begin, end]);
    }
    return result;
  }

  function showMemory() {
    const strips = Object.entries(touches()).map(([name, one]) => {
      const bars = ["touched", "reads", "writes"].flatMap((kind) =>
        merged(one[kind]).map(([begin, end]) => make("rect",
          { class: kind, x: begin - one.low, y: 0, width: end - begin, height: 1 })));
      const text = `${name}, elements ${one.low} to ${one.high - 1}: `
        + (one.said.join("; ") || "untouched now");
      return make("div", { class: "strip" }, text,
        make("svg", { viewBox: `0 0 ${one.high - one.low} 1`, preserveAspectRatio: "none",
          role: "img", "aria-label": text }, ...bars));
    });
    $("memory").replaceChildren(...(strips.length ? strips
      : [make("p", {}, "These steps touch no memory.")]));
  }

  // Every warp in a row, on one scale: what warps wait for together stands in one column.
  function showTime() {
    const first = Math.min(...steps.map((step) => step.number));
    const count = Math.max(...steps.map((step) => step.number)) - first + 1;
    const heights = { "sync block": 1, "sync warp": .6, mma: .25 };
    const strips = warps.map((warp) => {
      const own = steps.filter((step) => step.warp === warp);
      const kinds = own.map((step) => (step.kind === "sync" ? lines.get(step.path) : step.kind));
      const bars = own.flatMap((step, place) => {
        const height = heights[kinds[place]];
        if (!height) return [];
        return [make("rect", { class: step.kind, x: step.number - first + .15, width: .7,
          y: (1 - height) / 2, height })];
      });
      bars.push(...own.filter((step) => differing.has(keyOf(step))).map((step) =>
        make("rect", { class: "differs", x: step.number - first, y: .8, width: 1, height: .2 })));
      const now = warp === mine[at].warp;
      bars.push(...(now ? [make("rect", { class: "now", x: mine[at].number - first, y: 0, width: 1,
        height: 1 })] : []));
      const tell = (kind) => own.filter((_, place) => kinds[place] === kind)
        .map((step) => step.number);
      const many = (kind, one, more) => `${tell(kind).length} ${tell(kind).length === 1 ? one : more}`;
      const text = `warp ${nameOf(warp)}: ${many("sync block", "barrier", "barriers")} of the block, `
        + `${many("sync warp", "barrier", "barriers")} of the warp, `
        + many("mma", "product", "products");
      const told = `${text}. Barriers of the block at steps ${tell("sync block").join(", ") || "none"}`;
      const svg = make("svg", { viewBox: `0 0 ${count} 1`, preserveAspectRatio: "none", role: "img",
        "aria-label": `${told}; of the warp at ${tell("sync warp").join(", ") || "none"}` }, ...bars);
      svg.addEventListener("click", (event) => {
        const box = svg.getBoundingClientRect();
        const number = first + Math.floor((event.clientX - box.left) / box.width * count);
        const found = mine.findIndex((step) => step.number >= number);
        go(found < 0 ? mine.length - 1 : found);
      });
      return make("div", { class: "strip time" }, text, svg);
    });
    $("time").replaceChildren(...strips);
  }

  // --- Beginning ----------------------------------------------------------------------------

  const runs = new Set(steps.flatMap(({ path }) =>
    path.split(".").map((_, i, parts) => parts.slice(0, i + 1).join("."))));
  const differs = new Set(steps.filter((step) => differing.has(keyOf(step))).map(({ path }) => path));
  $("listing").append(...data.listing.map(([path, line]) => {
    const mark = beside ? [make("span", { class: "differs" }, differs.has(path) ? "≠ " : "  ")] : [];
    const [text, cited] = parted(line);
    const button = make("button", { "data-path": path, disabled: !runs.has(path),
      title: `${text.slice(path.length).trim()}${cited ? ` (${cited})` : ""}` }, ...mark, text);
    button.addEventListener("click", () => lead(path));
    return make("li", {}, button);
  }));
  $("head").textContent = data.head;
  $("about").textContent = beside
    ? `The arithmetic of ${sides[0].title}, beside that of ${sides[1].title}. ${verdict}`
    : `The arithmetic of ${data.title}.`;
  $("app").classList.toggle("beside", beside);
  for (const id of ["differences", "difference", "differs-key", "differs-help"]) {
    $(id).hidden = !beside;
  }
  $("notes").append(...[...new Set(sides.flatMap(({ notes }) => notes))].map((note) => make("p", {}, note)));
  $("warp").append(...warps.map((warp) => make("option", { value: warp }, nameOf(warp))));
  $("warps").hidden = warps.length < 2;
  $("app").hidden = false;

  $("begin").addEventListener("click", () => go(0));
  $("back").addEventListener("click", () => go(at - 1));
  $("next").addEventListener("click", () => go(at + 1));
  $("end").addEventListener("click", () => go(mine.length - 1));
  $("differ-back").disabled = $("differ-next").disabled = !differing.size;
  $("differ-back").addEventListener("click", () => differ(false));
  $("differ-next").addEventListener("click", () => differ(true));
  $("slider").addEventListener("input", () => go(Number($("slider").value)));
  $("warp").addEventListener("change", () => choose(Number($("warp").value)));
  $("hex").addEventListener("change", show);
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    // These have their own use for the keys; a box only if it can scroll.
    const { target, key } = event;
    const scrolls = /^Arrow/.test(key) ? target.scrollWidth > target.clientWidth
      : /^(Home|End)$/.test(key) && target.scrollHeight > target.clientHeight;
    if (target.matches("select, #slider") || (target.matches(".scroll") && scrolls)) return;
    const keys = { ArrowLeft: () => go(at - 1), ArrowRight: () => go(at + 1), Home: () => go(0),
      End: () => go(mine.length - 1), h: () => $("hex").click(), d: () => differ(true), D: () => differ(false) };
    if (!keys[key]) return;
    event.preventDefault();
    keys[key]();
  });
  choose(warps[0]);
  // An address that ends in #step=6 opens the page there; in #step=6,3,2 at this output of it.
  const asked = /^#step=(\d+)(?:,(\d+),(\d+))?$/.exec(location.hash);
  if (asked?.[2]) chosen = [Number(asked[2]), Number(asked[3])];
  if (asked) go(Math.min(Number(asked[1]), mine.length) - 1);
  performance.mark("shown");
}

read().then(
  (data) => {
    const [one] = data.sides;
    if (one.steps.length) start(data);
    else $("about").textContent = `No step is in this trace. ${one.notes.join(" ")}`;
  },
  (error) => {
    $("about").textContent = `This browser cannot show the page: ${error.message}. A newer one can.`;
  },
);
