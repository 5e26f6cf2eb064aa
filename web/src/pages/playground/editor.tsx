import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { cpp } from "@codemirror/lang-cpp";
import { javascript } from "@codemirror/lang-javascript";
import { python } from "@codemirror/lang-python";
import { bracketMatching, HighlightStyle, indentOnInput, indentUnit, StreamLanguage, syntaxHighlighting } from "@codemirror/language";
import { java } from "@codemirror/legacy-modes/mode/clike";
import { go } from "@codemirror/legacy-modes/mode/go";
import { perl } from "@codemirror/legacy-modes/mode/perl";
import { rust } from "@codemirror/legacy-modes/mode/rust";
import { shell } from "@codemirror/legacy-modes/mode/shell";
import { ruby } from "@codemirror/legacy-modes/mode/ruby";
import { Compartment, EditorState, type Extension } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { useEffect, useRef } from "react";
import { Echoes } from "./echoes";

const languages: Record<string, () => Extension> = {
  py: python,
  js: javascript,
  c: cpp,
  sh: () => StreamLanguage.define(shell),
  rb: () => StreamLanguage.define(ruby),
  java: () => StreamLanguage.define(java),
  go: () => StreamLanguage.define(go),
  rs: () => StreamLanguage.define(rust),
  pl: () => StreamLanguage.define(perl),
};

const colours = HighlightStyle.define([
  { tag: tags.keyword, color: "light-dark(#7a2f8f, #d3a4e3)" },
  { tag: [tags.string, tags.special(tags.string)], color: "light-dark(#1d6a34, #8ed0a0)" },
  { tag: [tags.number, tags.bool, tags.null], color: "light-dark(#9a4a00, #f0b77a)" },
  { tag: tags.comment, color: "light-dark(#5a6669, #98a4a8)", fontStyle: "italic" },
  { tag: [tags.function(tags.variableName), tags.function(tags.propertyName)], color: "light-dark(#1d4fa8, #8ab4f8)" },
  { tag: [tags.typeName, tags.className], color: "light-dark(#0b6370, #74ccd4)" },
]);

const look = EditorView.theme({
  "&": { height: "100%", minHeight: "22rem", fontSize: "0.8125rem", backgroundColor: "var(--card)", color: "var(--ink)" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "-2px" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.5" },
  ".cm-content": { caretColor: "var(--ink)", padding: "0.75rem 0" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  ".cm-gutters": { backgroundColor: "var(--card)", color: "var(--ink-soft)", border: "0", paddingLeft: "0.5rem" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "light-dark(#f4f6f5, #1d2326)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { background: "light-dark(#bfe2e5, #1f5961)" },
});

export interface EditorProps {
  text: string;
  /** The language by the file's ending, as languageOf returns it. */
  language: string;
  label: string;
  onChange: (text: string) => void;
  /** Called for Ctrl-Enter. */
  onRun?: () => void;
}

/**
 * Editor is a text editor. It is in a shadow tree, because only there its styles need no style elements, which the
 * page's policy forbids. Escape and then Tab leaves it.
 */
export default function Editor({ text, language, label, onChange, onRun }: EditorProps) {
  const host = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView>(null);
  const mode = useRef(new Compartment());
  const echoes = useRef(new Echoes());
  const latest = useRef({ onChange, onRun });
  useEffect(() => {
    latest.current = { onChange, onRun };
  });

  useEffect(() => {
    const root = host.current!.shadowRoot ?? host.current!.attachShadow({ mode: "open" });
    const run = () => {
      latest.current.onRun?.();
      return true;
    };
    view.current = new EditorView({
      root,
      parent: root,
      state: EditorState.create({
        doc: text,
        extensions: [
          lineNumbers(),
          history(),
          drawSelection(),
          indentOnInput(),
          indentUnit.of("    "),
          bracketMatching(),
          highlightActiveLine(),
          syntaxHighlighting(colours),
          look,
          keymap.of([{ key: "Mod-Enter", run }, ...defaultKeymap, ...historyKeymap, indentWithTab]),
          EditorView.contentAttributes.of({ "aria-label": label, tabindex: "0" }),
          EditorView.updateListener.of((update) => {
            if (!update.docChanged) return;
            const now = update.state.doc.toString();
            echoes.current.report(now);
            latest.current.onChange(now);
          }),
          mode.current.of([]),
        ],
      }),
    });
    return () => view.current?.destroy();
    // The effect uses only the first text; the effect below sets later ones.
  }, [label]);

  useEffect(() => {
    const editor = view.current;
    if (!editor || echoes.current.has(text) || editor.state.doc.toString() === text) return;
    editor.dispatch({ changes: { from: 0, to: editor.state.doc.length, insert: text } });
    echoes.current.clear();
  }, [text]);

  useEffect(() => {
    view.current?.dispatch({ effects: mode.current.reconfigure(languages[language]?.() ?? []) });
  }, [language]);

  return <div ref={host} />;
}
