// Sends requests to the server of this page, or to ?server=http://HOST:PORT,
// which may be TensorFlow Serving with --rest_api_enable_cors_support. ?model=
// names another model; ?text= is translated at once.
"use strict";

const parameters = new URLSearchParams(location.search);
const model = parameters.get("model") ?? document.querySelector("meta[name=model]").content;
const server = (parameters.get("server") ?? "").replace(/\/+$/, "");
const url = `${server}/v1/models/${encodeURIComponent(model)}`;
const byId = (id) => document.getElementById(id);
const CELL = { least: 18, most: 26 }; // pixels
// Sentences by source language, for exports whose card has none.
const EXAMPLES = {
  ar: "كلبان يلعبان في الحديقة.",
  de: "Zwei Hunde spielen im Park.",
  en: "Two dogs play in the park.",
  es: "Dos perros juegan en el parque.",
  fr: "Deux chiens jouent dans le parc.",
  ja: "二匹の犬が公園で遊んでいます。",
  ro: "Doi câini se joacă în parc.",
  ru: "Две собаки играют в парке.",
  zh: "两只狗在公园里玩耍。",
};
let request = new AbortController();
let attentionSignature = "attention"; // see describe()
let readsSide = false;

async function fetchJson(address, options) {
  const response = await fetch(address, options).catch((error) => {
    if (error.name === "AbortError") throw error;
    throw new Error(
      server
        ? `No answer from ${server}: it does not run, or not with --rest_api_enable_cors_support.`
        : "No answer from the server: it does not run. Start it again, then translate again.",
    );
  });
  const body = await response.json().catch((error) => {
    if (error.name === "AbortError") throw error;
  });
  if (!response.ok) throw new Error(body?.error ?? `HTTP ${response.status}`);
  if (!body) throw new Error("The answer was cut off, or is not that of a model server. Translate again.");
  return body;
}

async function predict(signature, text, signal) {
  const body = JSON.stringify({ signature_name: signature, inputs: [text] });
  const headers = { "Content-Type": "application/json" };
  const options = { method: "POST", headers, body, signal };
  return (await fetchJson(`${url}:predict`, options)).outputs;
}

async function translate(text) {
  request.abort(); // its answer would be that of an earlier text
  request = new AbortController();
  const { signal } = request;
  byId("error").hidden = true;
  await described;
  byId("result").setAttribute("aria-busy", "true");
  try {
    if (readsSide) throw new Error("This export reads a text beside each sentence, which this page cannot send. Use t2t query --side.");
    showHypotheses(await predict("n_best", text, signal));
    await predict(attentionSignature, text, signal).then(showAttention, (error) => {
      if (signal.aborted) throw error;
      showNoAttention(error);
    });
  } catch (error) {
    if (signal.aborted) return;
    showError(error);
    byId("result").hidden = true;
  }
  byId("result").setAttribute("aria-busy", "false");
}

function showError(error) {
  byId("error").textContent = error.message;
  byId("error").hidden = false;
}

// Show what the model is, from the metadata of its newest version.
async function describe() {
  const { model_spec: { version }, metadata } = await fetchJson(`${url}/metadata`);
  byId("model").textContent = `${model}, version ${version}`;
  const signatures = metadata.signature_def.signature_def;
  readsSide = !("n_best" in signatures);
  if ("attention_heads" in signatures) attentionSignature = "attention_heads";
  const { source_language: source, target_language: target, target_languages: targets = [], example } =
    metadata.model_card?.data ?? {}; // TensorFlow Serving answers without a card
  const into = [target, ...targets].filter(Boolean);
  if (into.length) {
    const names = into.map(languageName).join(", ");
    byId("heading").textContent = `Translate ${source ? `from ${languageName(source)} ` : ""}to ${names}`;
    document.title = `${source ? `${languageName(source)} to` : "To"} ${names} · ${model}`;
    byId("text").lang = source;
    if (!target) byId("text").placeholder = `Begin with the language: <2${into[0]}> …`;
    if (target) byId("result").querySelectorAll("output, ol").forEach((element) => { element.lang = target; });
  }
  const sentence = example || (targets.length ? "" : EXAMPLES[source]);
  byId("example").hidden = !sentence;
  byId("example").onclick = () => {
    byId("text").value = sentence;
    byId("form").requestSubmit();
  };
}

function languageName(code) {
  try {
    return new Intl.DisplayNames("en", { type: "language" }).of(code);
  } catch {
    return code; // not one of BCP 47
  }
}

async function copy() {
  try {
    await navigator.clipboard.writeText(byId("best").textContent);
  } catch { // browsers have it for HTTPS and for this computer only
    getSelection().selectAllChildren(byId("best"));
    document.execCommand("copy");
  }
  byId("copy").textContent = "Copied";
}

// A list of fewer outputs than beams ends in empty ones, whose score is -1e9.
function countOutputs(scores) {
  return Math.max(scores.filter((score) => score >= -5e8).length, 1);
}

function showHypotheses({ outputs: [texts], scores: [scores], truncated: [cut] }) {
  byId("best").textContent = texts[0];
  byId("copy").textContent = "Copy";
  byId("truncated").hidden = !cut;
  byId("hypotheses").replaceChildren(
    ...texts.slice(0, texts.some(Boolean) ? countOutputs(scores) : 1).map((text, i) => {
      const item = document.createElement("li");
      const score = document.createElement("data");
      score.value = scores[i];
      score.textContent = scores[i].toFixed(2);
      const isolated = document.createElement("bdi"); // either direction
      isolated.textContent = text;
      item.append(score, " ", isolated);
      return item;
    }),
  );
  byId("attention").hidden = true;
  byId("no-attention").hidden = true;
  byId("result").hidden = false;
}

function showNoAttention(error) {
  const noSignature = /signature/i.test(error.message);
  byId("no-attention").textContent = noSignature
    ? "This export has no signature attention: export the model again to get it."
    : error.message;
  byId("no-attention").hidden = false;
}

function showAttention(outputs) {
  if (outputs.truncated[0]) return showNoAttention(new Error("The text is too long for a picture."));
  const source = outputs.source_pieces[0].slice(0, outputs.source_lengths[0]);
  const target = outputs.target_pieces[0].slice(0, outputs.target_lengths[0]);
  if (!target.length) return showNoAttention(new Error("There is no text to draw."));
  // [layers][heads][T][L], of which the signature `attention` has one head.
  const layers = attentionSignature === "attention" ? outputs.weights[0].map((mean) => [mean]) : outputs.weights[0];
  offer("layer", layers.length);
  offer("head", layers[0].length);
  byId("heads").hidden = layers[0].length === 1;
  byId("no-heads").hidden = attentionSignature !== "attention";
  const draw = () => {
    const units = byId("units").value === "words" ? words : subwords;
    const [rows, columns] = [units(target), units(source)];
    const weights = byWord(meanOf(layers, byId("layer").value, byId("head").value), columns, rows);
    byId("picture").replaceChildren(...pictures(columns, rows, weights));
  };
  for (const name of ["layer", "head", "units"]) byId(name).onchange = draw;
  byId("attention").hidden = false; // first: a picture is as wide as its place
  draw();
}

// Offer "mean of all" and the numbers from 1; keep what was chosen.
function offer(name, count) {
  if (byId(name).length === count + 1) return;
  const numbers = Array.from({ length: count }, (_, i) => new Option(`${i + 1}`, `${i}`));
  byId(name).replaceChildren(new Option("mean of all", ""), ...numbers);
}

// The mean of the chosen layers and heads, of all where "" is chosen: [T][L].
function meanOf(layers, layer, head) {
  const chosen = (layer === "" ? layers : [layers[layer]]).flatMap((heads) => (head === "" ? heads : [heads[head]]));
  return chosen[0].map((row, t) =>
    row.map((_, s) => chosen.reduce((sum, weights) => sum + weights[t][s], 0) / chosen.length),
  );
}

// Join pieces to words: [{text, pieces: their indices}]. "▁" begins a word; a
// byte of a letter that the vocabulary lacks is a piece such as <0xF0>. Without
// "▁" the pieces are those of another vocabulary, and each is drawn, as in
// scripts that have no spaces. The last one is the end of the sentence.
function words(pieces) {
  const unspaced = /[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}\p{sc=Thai}\p{sc=Lao}\p{sc=Khmer}\p{sc=Myanmar}]/u;
  const joined = [];
  const marked = pieces.some((piece) => piece.startsWith("▁"));
  pieces.forEach((piece, index) => {
    const isEnd = index === pieces.length - 1;
    const isAlone = unspaced.test(piece) || unspaced.test(pieces[index - 1] ?? "");
    if (index === 0 || !marked || piece.startsWith("▁") || isEnd || (isAlone && joined.at(-1).text)) {
      joined.push({ text: "", pieces: [] });
    }
    const word = joined.at(-1);
    word.text += isEnd ? "(end)" : piece.replaceAll("▁", " ").trim();
    word.pieces.push(index);
  });
  for (const word of joined) {
    word.text = word.text.replace(/(<0x[0-9A-F]{2}>)+/g, (bytes) =>
      new TextDecoder().decode(Uint8Array.from(bytes.match(/[0-9A-F]{2}(?=>)/g), (b) => parseInt(b, 16))),
    );
  }
  return joined;
}

// Pieces as the model reads and writes them, in the form of words().
function subwords(pieces) {
  return pieces.map((piece, index) => ({
    text: index === pieces.length - 1 ? "(end)" : piece,
    pieces: [index],
  }));
}

// Convert weights between pieces to weights between words: the sum over the
// pieces of a source word, the mean over the pieces of a target word.
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

// Shorten a text to a width in pixels, and measure it.
function fitted(text, limit) {
  const context = document.createElement("canvas").getContext("2d");
  context.font = `14px ${getComputedStyle(document.body).fontFamily}`;
  const letters = [...text];
  const join = () => (letters.length < [...text].length ? `${letters.join("")}…` : text);
  while (letters.length > 1 && context.measureText(join()).width > limit) letters.pop();
  return { label: join(), width: context.measureText(join()).width };
}

// As many pictures, one above the other, as the columns need in this width.
function pictures(source, target, weights) {
  const place = byId("picture").clientWidth - 8; // its padding
  const rows = target.map(({ text }) => fitted(text, place / 3));
  const left = Math.max(...rows.map(({ width }) => width)) + 12;
  const side = Math.min(CELL.most, Math.max(CELL.least, Math.floor((place - left) / source.length)));
  const count = Math.max(1, Math.floor((place - left) / side));
  const indices = [...source.keys()];
  const parts = [];
  while (indices.length) parts.push(indices.splice(0, count));
  // Right to left, as its text is read.
  if (byId("text").matches(":dir(rtl)")) parts.forEach((part) => part.reverse());
  return parts.map((part) => picture({ part, rows, left, side, source, target, weights }));
}

function picture({ part, rows, left, side, source, target, weights }) {
  const columns = part.map((s) => fitted(source[s].text, 140));
  const top = Math.max(...columns.map(({ width }) => width)) + 12;
  const width = left + part.length * side, height = top + target.length * side;
  const drawing = svg("svg", {
    role: "img",
    width: width + 2,
    height: height + 2,
    "aria-label": target.map(({ text }, t) => {
      const most = weights[t].indexOf(Math.max(...weights[t]));
      return `${text} from ${source[most].text}`;
    }).join(", "),
  });
  columns.forEach(({ label }, i) => {
    const x = left + (i + 0.68) * side, y = top - 6;
    drawing.append(svg("text", { x, y, transform: `rotate(-90 ${x} ${y})` }, label));
  });
  target.forEach(({ text }, t) => {
    const y = top + t * side;
    drawing.append(svg("text", { x: left - 8, y: y + 0.68 * side, "text-anchor": "end" }, rows[t].label));
    part.forEach((s, i) => {
      const weight = weights[t][s];
      const title = svg("title", {}, `${text} ← ${source[s].text}: ${(100 * weight).toFixed(0)}%`);
      drawing.append(svg("rect", {
        x: left + i * side + 1, y: y + 1, width: side - 2, height: side - 2, rx: 3,
        "fill-opacity": weight.toFixed(3),
      }, title));
    });
  });
  drawing.append(svg("rect", { class: "frame", x: left, y: top, width: width - left, height: height - top, rx: 4 }));
  return drawing;
}

byId("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = byId("text").value.trim();
  if (text) translate(text);
});
byId("text").addEventListener("keydown", (event) => {
  // isComposing: the Enter confirms a word of an input method.
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  byId("form").requestSubmit();
});
byId("copy").addEventListener("click", copy);
const described = describe().catch(showError);
if (parameters.get("text")) {
  byId("text").value = parameters.get("text");
  byId("form").requestSubmit();
}
