// Asks the server that sent this page, or ?server=http://HOST:PORT, which may
// be TensorFlow Serving with --rest_api_enable_cors_support; ?model= and
// ?text= say of which model and what.
"use strict";

const asked = new URLSearchParams(location.search);
const model = asked.get("model") ?? document.querySelector("meta[name=model]").content;
const url = `${asked.get("server") ?? ""}/v1/models/${encodeURIComponent(model)}`;
const at = (id) => document.getElementById(id);
const CELL = 26; // pixels
let running = new AbortController();

async function answerOf(response) {
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(body.error ?? `HTTP ${response.status}`);
  return body;
}

async function predict(signature, text, signal) {
  const body = JSON.stringify({ signature_name: signature, inputs: [text] });
  const response = await fetch(`${url}:predict`, { method: "POST", body, signal });
  return (await answerOf(response)).outputs;
}

async function translate(text) {
  running.abort(); // an answer to what was typed before comes too late
  running = new AbortController();
  const { signal } = running;
  at("error").hidden = true;
  at("result").setAttribute("aria-busy", "true");
  try {
    showHypotheses(await predict("n_best", text, signal));
    await predict("attention", text, signal).then(showAttention, (error) => {
      if (signal.aborted) throw error;
      showNoAttention(error);
    });
  } catch (error) {
    if (signal.aborted) return;
    at("error").textContent = error.message;
    at("error").hidden = false;
    at("result").hidden = true;
  }
  at("result").setAttribute("aria-busy", "false");
}

function showHypotheses({ outputs: [texts], scores: [scores], truncated: [cut] }) {
  at("best").textContent = texts[0];
  at("truncated").hidden = !cut;
  at("hypotheses").replaceChildren(
    ...texts.map((text, i) => {
      const item = document.createElement("li");
      const score = document.createElement("data");
      score.value = scores[i];
      score.textContent = scores[i].toFixed(2);
      item.append(score, " ", text);
      return item;
    }),
  );
  at("attention").hidden = true;
  at("no-attention").hidden = true;
  at("result").hidden = false;
}

function showNoAttention(error) {
  const old = /signature/i.test(error.message);
  at("no-attention").textContent = old
    ? "This export has no signature attention: export the model again to see it."
    : error.message;
  at("no-attention").hidden = false;
}

function showAttention(found) {
  if (found.truncated[0]) return showNoAttention(new Error("The text is too long for a picture."));
  const source = words(found.source_pieces[0].slice(0, found.source_lengths[0]));
  const target = words(found.target_pieces[0].slice(0, found.target_lengths[0]));
  const layers = found.weights[0].map((weights) => byWord(weights, source, target));
  const mean = target.map((_, t) =>
    source.map((_, s) => layers.reduce((sum, layer) => sum + layer[t][s], 0) / layers.length),
  );
  const choices = [["mean of all", mean], ...layers.map((layer, i) => [`${i + 1}`, layer])];
  at("layer").replaceChildren(...choices.map(([name]) => new Option(name)));
  const draw = () => {
    const [, weights] = choices[at("layer").selectedIndex];
    at("picture").replaceChildren(picture(source, target, weights));
  };
  at("layer").onchange = draw;
  draw();
  at("attention").hidden = false;
}

// Pieces -> [{text, pieces: their places}]: "▁" begins a word, and bytes that
// the vocabulary has no letter for are spelt <0xF0>.
function words(pieces) {
  const found = [];
  pieces.forEach((piece, place) => {
    if (place === 0 || piece.startsWith("▁") || piece === "</s>") {
      found.push({ text: "", pieces: [] });
    }
    const word = found.at(-1);
    word.text += piece === "</s>" ? "(end)" : piece.replaceAll("▁", " ").trim();
    word.pieces.push(place);
  });
  for (const word of found) {
    word.text = word.text.replace(/(<0x[0-9A-F]{2}>)+/g, (bytes) =>
      new TextDecoder().decode(Uint8Array.from(bytes.match(/[0-9A-F]{2}(?=>)/g), (b) => parseInt(b, 16))),
    );
  }
  return found;
}

// Weights of pieces -> of words: what a word is looked at is the sum over its
// pieces; where a word looks is the mean over its own.
function byWord(weights, source, target) {
  return target.map(({ pieces: rows }) =>
    source.map(({ pieces: columns }) => {
      let sum = 0;
      for (const row of rows) for (const column of columns) sum += weights[row][column];
      return sum / rows.length;
    }),
  );
}

function svg(name, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function picture(source, target, weights) {
  const widest = (side) => Math.max(...side.map((word) => [...word.text].length)) * 8.5 + 12;
  const left = widest(target), top = widest(source);
  const width = left + source.length * CELL, height = top + target.length * CELL;
  const drawing = svg("svg", {
    role: "img",
    width: width + 10,
    height: height + 2,
    "aria-label": target.map(({ text }, t) => {
      const most = weights[t].indexOf(Math.max(...weights[t]));
      return `${text} from ${source[most].text}`;
    }).join(", "),
  });
  source.forEach(({ text }, s) => {
    const x = left + (s + 0.65) * CELL, y = top - 6;
    drawing.append(svg("text", { x, y, transform: `rotate(-90 ${x} ${y})` }, text));
  });
  target.forEach(({ text }, t) => {
    const y = top + t * CELL;
    drawing.append(svg("text", { x: left - 8, y: y + 0.68 * CELL, "text-anchor": "end" }, text));
    source.forEach((word, s) => {
      const weight = weights[t][s];
      const title = svg("title", {}, `${text} ← ${word.text}: ${(100 * weight).toFixed(0)}%`);
      drawing.append(svg("rect", {
        x: left + s * CELL + 1, y: y + 1, width: CELL - 2, height: CELL - 2, rx: 3,
        "fill-opacity": weight.toFixed(3),
      }, title));
    });
  });
  drawing.append(svg("rect", { class: "frame", x: left, y: top, width: width - left, height: height - top, rx: 4 }));
  return drawing;
}

at("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = at("text").value.trim();
  if (text) translate(text);
});
at("text").addEventListener("keydown", (event) => {
  // An input method's own Enter chooses a word.
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  at("form").requestSubmit();
});
fetch(url).then(answerOf).then(
  ({ model_version_status: versions }) => {
    const serving = versions.find((version) => version.state === "AVAILABLE");
    at("model").textContent = `${model}, version ${serving?.version ?? "none"}`;
  },
  (error) => { at("model").textContent = error.message; },
);
if (asked.get("text")) {
  at("text").value = asked.get("text");
  at("form").requestSubmit();
}
