import { lazy, Suspense, useEffect, useRef, useState } from "react";
import { Link } from "wouter";
import { ask } from "../../lib/ask";
import { RunMutation } from "../../lib/calls";
import { useAction, useQuery } from "../../lib/hooks";
import { graphql } from "../../lib/graphql";
import { sentence, verdict } from "../../lib/outcome";
import { session } from "../../lib/session";
import { useOutput } from "../../lib/useoutput";
import { Card, Empty, Failure, Field, Loading, Page, Tag } from "../../ui/parts";
import { OutputView } from "../../ui/output";
import { DownloadButton } from "../execution/download";
import { asCurl, asGraphQL, runVariables } from "./calls";
import { begin, languageOf, pack, templateOf, unpack, type Program } from "./program";

const Editor = lazy(() => import("./editor"));

const ChoicesQuery = graphql(`
  query PlaygroundEnvironments {
    environments {
      id
    }
  }
`);

/** A program is written, run and watched; a link reproduces it. */
export default function Playground() {
  const { data, error, reload } = useQuery(ChoicesQuery, {});
  const [initial, setInitial] = useState<Program>();
  const [links, setLinks] = useState(0); // that were followed on this page
  const ids = data?.environments.map((environment) => environment.id);
  const known = ids !== undefined;
  useEffect(() => {
    if (!known) return;
    let stopped = false;
    void (async () => {
      const linked = await unpack(window.location.hash.slice(1));
      const wished = new URLSearchParams(window.location.search).get("environment") ?? "";
      const first = ids.includes(wished) ? wished : ids.includes("python") ? "python" : (ids[0] ?? "");
      if (!stopped) setInitial(linked ?? begin(first));
    })();
    return () => {
      stopped = true;
    };
    // Once: what is written later isn't to be overwritten.
  }, [known]);
  useEffect(() => {
    const linked = async () => {
      const program = await unpack(window.location.hash.slice(1));
      if (!program) return;
      setInitial(program);
      setLinks((n) => n + 1);
    };
    window.addEventListener("hashchange", linked);
    return () => window.removeEventListener("hashchange", linked);
  }, []);
  return (
    <Page title="Playground">
      <Failure error={error} retry={reload} />
      {!initial && !error && <Loading what="the environments" />}
      {ids?.length === 0 && (
        <Empty title="There is nothing to run programs in yet">
          <Link href="/new-environment" className="button primary">
            Create an environment
          </Link>
        </Empty>
      )}
      {initial && ids && ids.length > 0 && <Bench key={links} initial={initial} ids={ids} />}
    </Page>
  );
}

function Bench({ initial, ids }: { initial: Program; ids: readonly string[] }) {
  const [program, setProgram] = useState(initial);
  const [copied, setCopied] = useState<string>();
  const ran = useRef<Program>(undefined);
  const [executionId, setExecutionId] = useState<string>();
  const set = (change: Partial<Program>) => {
    setProgram((before) => ({ ...before, ...change }));
    setCopied(undefined);
  };
  const choose = (environment: string) => {
    // What was not touched yet is the new language's.
    const untouched = program.text === templateOf(program.environment).text;
    if (untouched) setProgram({ ...begin(environment), stdin: program.stdin });
    else set({ environment });
  };
  const run = useAction(async () => {
    ran.current = program;
    window.history.replaceState(null, "", `#${await pack(program)}`);
    setExecutionId((await ask(RunMutation, runVariables(program))).run.execution.id);
  });
  const copy = async () => {
    window.history.replaceState(null, "", `#${await pack(program)}`);
    try {
      await navigator.clipboard.writeText(window.location.href);
      setCopied("Link copied");
    } catch {
      setCopied("The address is the link"); // without TLS there is no clipboard, or it was refused
    }
  };

  return (
    <>
      <div className="filters">
        <label>
          <span className="hidden-text">Environment</span>
          <select className="select" value={program.environment} onChange={(event) => choose(event.target.value)}>
            {!ids.includes(program.environment) && <option value={program.environment}>{program.environment} (not here)</option>}
            {ids.map((id) => (
              <option key={id}>{id}</option>
            ))}
          </select>
        </label>
        <button type="button" className="button primary" disabled={run.busy} onClick={() => void run.run()}>
          Run
        </button>
        <button type="button" className="button" onClick={() => void copy()}>
          {copied ?? "Copy a link"}
        </button>
        <span className="small soft">Ctrl-Enter runs it, too.</span>
      </div>
      <div className="playground">
        <Card
          bare
          title={
            <label>
              <span className="hidden-text">File name</span>
              <input className="input mono" style={{ width: "10rem" }} value={program.file} spellCheck={false} onChange={(event) => set({ file: event.target.value })} />
            </label>
          }
          aside={
            <label className="row tight" style={{ flex: "1 1 12rem", justifyContent: "flex-end", flexWrap: "nowrap" }}>
              <span className="small soft">runs</span>
              <input className="input mono" style={{ minWidth: "8rem", maxWidth: "20rem" }} value={program.command} spellCheck={false} onChange={(event) => set({ command: event.target.value })} />
            </label>
          }
        >
          <div className="editor-frame">
            <Suspense fallback={<Loading what="the editor" />}>
              <Editor text={program.text} language={languageOf(program.file)} label="Program" onChange={(text) => set({ text })} onRun={() => void run.run()} />
            </Suspense>
          </div>
          <div className="card-body" style={{ borderTop: "1px solid var(--line)" }}>
            <Field label="Standard input">
              {(tie) => <textarea {...tie} className="input" rows={2} value={program.stdin} placeholder="Nothing: it is at its end from the start" spellCheck={false} onChange={(event) => set({ stdin: event.target.value })} />}
            </Field>
          </div>
        </Card>
        <div className="stack">
          <Failure error={run.error} />
          <Result executionId={executionId} />
          <Calls program={program} />
        </div>
      </div>
    </>
  );
}

function Result({ executionId }: { executionId: string | undefined }) {
  const followed = useOutput(executionId);
  const { end } = followed;
  const state = end ?? { state: followed.started ? ("RUNNING" as const) : ("PENDING" as const), outcome: null, exitCode: null, signal: null, goneReason: null, message: null, usage: null };
  const { tone, text } = verdict(state);
  return (
    <Card title="Output" bare aside={executionId && <Link href={`/executions/${executionId}`}>All about it</Link>}>
      <div className="card-head row" aria-live="polite" style={{ padding: "0.5rem 1rem", minHeight: "2.75rem", borderBottom: "1px solid var(--line)" }}>
        {executionId ? (
          <>
            <Tag tone={tone}>{text}</Tag>
            <span className="small grow">{sentence(state)}</span>
          </>
        ) : (
          <span className="small soft">It hasn't been run yet.</span>
        )}
      </div>
      <Failure error={followed.error} />
      <OutputView
        output={followed.output}
        version={followed.version}
        live={executionId !== undefined && !end}
        label="What the program printed"
        tools={executionId && <DownloadButton id={executionId} />}
        height="20rem"
        nothing={<Empty title={end ? "It printed nothing" : executionId ? "Nothing printed yet" : "What it prints shows here"} />}
      />
    </Card>
  );
}

function Calls({ program }: { program: Program }) {
  const [as, setAs] = useState<"GraphQL" | "curl">();
  return (
    <Card
      title="The calls behind it"
      bare
      aside={
        <div className="segments" role="group" aria-label="Show the calls as">
          {(["GraphQL", "curl"] as const).map((kind) => (
            <button key={kind} type="button" className="button small" aria-pressed={as === kind} onClick={() => setAs(as === kind ? undefined : kind)}>
              as {kind}
            </button>
          ))}
        </div>
      }
    >
      {as ? (
        <pre className="calls" tabIndex={0} aria-label={`The calls as ${as}`}>
          {as === "GraphQL" ? asGraphQL(program) : asCurl(program, window.location.origin, session.token() !== "")}
        </pre>
      ) : (
        <p className="card-body soft small">What this page asks of the API, to be copied into a program of yours.</p>
      )}
    </Card>
  );
}
