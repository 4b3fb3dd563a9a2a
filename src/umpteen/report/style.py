"""The page's style sheet, and the policy that allows it and nothing else."""

from __future__ import annotations

import base64
import hashlib

STYLE = """
:root {
  color-scheme: light dark;
  --ground: #f7f7f5; --sheet: #ffffff; --ink: #1d2126; --soft: #565e68; --faint: #dfe2e6;
  --dual: #0072b2; --classifier: #c75400; --combined: #00835f; --ensemble: #8a3ffc;
  --right: #00734f; --right-ground: #e3f4ec;
  --warn: #7a4b00; --warn-ground: #fdf2dc; --train: #5b5fc7;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #14171a; --sheet: #1c2024; --ink: #e8eaed; --soft: #a3abb5; --faint: #343a41;
    --dual: #56b4e9; --classifier: #f2a03d; --combined: #35c497; --ensemble: #be95ff;
    --right: #5fd6ae; --right-ground: #17372d;
    --warn: #f3cf8b; --warn-ground: #3a2e16; --train: #a6a9ff;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
body {
  margin: 0; background: var(--ground); color: var(--ink); line-height: 1.55;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
}
a { color: var(--dual); }
header, main, footer { max-width: 70rem; margin: 0 auto; padding: 0 1.25rem; }
header { padding-top: 2.5rem; }
header p { max-width: none; }
footer { padding-bottom: 3rem; color: var(--soft); font-size: .875rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .35rem; letter-spacing: -.01em; }
h2 { font-size: 1.3rem; margin: 0 0 .35rem; letter-spacing: -.005em; }
h3 { font-size: 1rem; margin: 1.75rem 0 .5rem; }
h4 { font-size: .95rem; margin: 0 0 .6rem; font-weight: 600; overflow-wrap: anywhere; }
p { margin: .4rem 0 .8rem; max-width: 46rem; }
bdi, dd { overflow-wrap: anywhere; }
.soft { color: var(--soft); }
.over { color: var(--soft); font-size: .8rem; letter-spacing: .08em; text-transform: uppercase;
  margin: 0 0 .3rem; }
nav { margin: 1rem 0 1.5rem; font-size: .925rem; }
nav a { display: inline-block; margin: 0 1.1rem .3rem 0; text-decoration: none; }
nav a:hover, nav a:focus { text-decoration: underline; }
main > section { background: var(--sheet); border: 1px solid var(--faint); border-radius: 10px;
  padding: 1.4rem 1.5rem 1.5rem; margin: 0 0 1.25rem; }
.tiles { display: grid; gap: .75rem; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr));
  margin: 1.1rem 0 0; padding: 0; }
.tiles div { background: var(--sheet); border: 1px solid var(--faint); border-radius: 10px;
  padding: .75rem 1rem; display: flex; flex-direction: column-reverse; }
.tiles dt { color: var(--soft); font-size: .85rem; }
.tiles dd { margin: 0; font-size: 1.6rem; line-height: 1.2; font-variant-numeric: tabular-nums; }
.notice { background: var(--warn-ground); color: var(--warn); border-radius: 8px;
  padding: .65rem .9rem; margin: 1rem 0 0; max-width: none; }
.charts { display: grid; gap: 1rem 1.75rem; margin: .5rem 0 0;
  align-items: start;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); }
.charts.small { grid-template-columns: repeat(auto-fill, minmax(min(100%, 17rem), 1fr)); }
.charts > * { min-width: 0; }
figure { margin: 0; min-width: 0; }
figcaption { font-size: .9rem; font-weight: 600; margin: .5rem 0 .15rem; }
figcaption .soft { font-weight: 400; }
svg.chart { display: block; width: 100%; height: auto; max-width: 44rem; }
svg text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: var(--soft); }
svg text.value { font-size: 12px; fill: var(--ink); }
.grid { stroke: var(--faint); fill: none; }
.axis { stroke: var(--soft); fill: none; }
.mark { stroke: var(--soft); stroke-dasharray: 2 3; fill: none; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
.line.dual { stroke: var(--dual); stroke-dasharray: 7 5; }
.line.classifier { stroke: var(--classifier); stroke-dasharray: 2 5; stroke-width: 2.5; }
.line.combined { stroke: var(--combined); }
.line.ensemble { stroke: var(--ensemble); }
.line.train { stroke: var(--train); }
.band { fill: var(--train); stroke: var(--train); opacity: .22; }
.sign { stroke: var(--sheet); stroke-width: 1; }
.sign.dual, .bar.dual { fill: var(--dual); }
.sign.classifier, .bar.classifier { fill: var(--classifier); }
.sign.combined, .bar.combined { fill: var(--combined); }
.sign.ensemble, .bar.ensemble { fill: var(--ensemble); }
.sign.train { fill: var(--train); }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.4rem; list-style: none; margin: .4rem 0 0;
  padding: 0; font-size: .9rem; }
.legend svg { vertical-align: middle; margin-right: .45rem; }
.scroll { overflow-x: auto; margin: .3rem 0 0; }
table { border-collapse: collapse; font-size: .9rem; min-width: 100%;
  font-variant-numeric: tabular-nums; }
figcaption.caption { color: var(--soft); font-weight: 400; font-size: .875rem; max-width: 46rem; }
.id { display: block; color: var(--soft); font-size: .83rem; overflow-wrap: anywhere; }
th, td { text-align: left; padding: .36rem .9rem .36rem 0; border-bottom: 1px solid var(--faint);
  vertical-align: top; font-weight: 400; }
thead th { color: var(--soft); font-size: .83rem; vertical-align: bottom; }
tbody th { max-width: 26rem; }
#labels tbody th { min-width: 11rem; }
.number { text-align: right; white-space: nowrap; }
thead .number { white-space: normal; }
code { font: .85em ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
  overflow-wrap: anywhere; }
.facts { display: grid; grid-template-columns: minmax(8rem, max-content) 1fr; gap: .3rem 1.5rem;
  margin: .8rem 0 0; font-size: .925rem; }
.facts dt { color: var(--soft); }
.facts dd { margin: 0; overflow-wrap: anywhere; }
details { margin: .9rem 0 0; }
summary { cursor: pointer; color: var(--dual); font-size: .925rem; }
.example { border-top: 1px solid var(--faint); padding: 1rem 0 .35rem; }
.truth, .found { list-style: none; margin: 0; padding: 0; font-size: .9rem; }
.truth { display: flex; flex-wrap: wrap; gap: .35rem; }
.truth li { border: 1px solid var(--faint); border-radius: 6px; padding: .05rem .5rem;
  overflow-wrap: anywhere; max-width: 100%; }
.columns { display: grid; gap: .8rem 1.5rem; margin: .8rem 0 0;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 15rem), 1fr)); }
.columns h5, .example h5 { font-size: .83rem; font-weight: 400; color: var(--soft);
  margin: 0 0 .25rem; }
.found li { padding: .1rem .4rem .1rem 1.5rem; position: relative; border-radius: 5px;
  overflow-wrap: anywhere; margin-bottom: .1rem; }
.found li > span:first-child { position: absolute; left: .4rem; color: var(--soft); }
.found li.hit { background: var(--right-ground); font-weight: 600; }
li.hit > span:first-child { color: var(--right) !important; }
.truth li.hit { background: var(--right-ground); border-color: transparent; }
@media (max-width: 34rem) {
  header, main, footer { padding-left: .8rem; padding-right: .8rem; }
  header { padding-top: 1.5rem; }
  main > section { padding: 1.1rem 1rem 1.2rem; }
  .facts { grid-template-columns: 1fr; gap: 0; }
  .facts dd { margin-bottom: .5rem; }
  .charts:not(.small) svg text { font-size: 16px; }
  .charts:not(.small) svg text.value { font-size: 13px; }
}
@media print {
  body { background: #fff; }
  nav { display: none; }
  main > section { border: 0; padding: 0; }
  figure, .example, tr { break-inside: avoid; }
}
"""


def content_policy(style: str = STYLE) -> str:
    """Return a Content-Security-Policy that allows this one style sheet.

    No scripts, no requests.
    """
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
