import { useRef, useState } from "react";
import { describeCaller, describeNeed, needs } from "../../lib/access";
import { useCaller } from "../../lib/caller";
import { ServerError } from "../../lib/request";
import { ChangeToken } from "../../ui/changetoken";
import { Card, Dialog, Failure, Field, Notice } from "../../ui/parts";
import { SafeText } from "../../ui/safetext";
import { CallsView } from "./callsview";
import { back, opened, type Draft } from "./draft";
import { Files } from "./files";
import { LinkButton } from "./linkbutton";
import { begin, presetsFor, untouched, type EnvironmentImage, type Preset } from "./presets";
import { problemOf, wrongArguments, type Program } from "./program";
import { Result } from "./result";
import { useRun } from "./userun";

export interface BenchProps {
  draft: Draft;
  /** Whether the program was loaded from a link. */
  linked: boolean;
  /** Changes the latest draft, and returns the result. */
  onDraft: (change: (draft: Draft) => Draft) => Draft;
  /** Called before a run. */
  onRun: () => void;
  environments: readonly EnvironmentImage[];
}

/** Bench is where a program is written, run and watched. */
export function Bench({ draft, linked, onDraft, onRun, environments }: BenchProps) {
  const { program, kept } = draft;
  const { caller, may } = useCaller();
  const { number, phase, environment, underWay, stopping, stopError, run, stop, ended, forget } = useRun(!linked);
  const [problem, setProblem] = useState<string>();
  const [asked, setAsked] = useState<Preset>();
  const result = useRef<HTMLDivElement>(null);
  const [swapped, setSwapped] = useState(0); // a replaced program gets new editors
  const selected = environments.find(({ id }) => id === program.environment);

  const edit = (change: (program: Program) => Program) => {
    setProblem(undefined);
    onDraft((before) => ({ ...before, program: change(before.program) }));
  };
  const set = (change: Partial<Program>) => edit((before) => ({ ...before, ...change }));
  const replace = (change: (draft: Draft) => Draft) => {
    setProblem(undefined);
    setSwapped((n) => n + 1);
    onDraft(change);
  };
  const from = (where: EnvironmentImage, preset?: Preset): Program => ({ ...begin(where, preset), args: program.args, stdin: program.stdin });
  const choose = (id: string) => {
    const chosen = environments.find((one) => one.id === id);
    // An unchanged sample is replaced by one in the language of the new environment.
    if (chosen && untouched(program)) replace((before) => opened(before, from(chosen)));
    else set({ environment: id });
  };
  const start = (preset: Preset) => {
    if (!selected) return;
    setAsked(undefined);
    replace((before) => opened(before, from(selected, preset)));
  };
  const go = () => {
    if (!may("use")) return;
    const { program: latest } = onDraft((before) => before);
    const wrong = problemOf(latest);
    setProblem(wrong);
    result.current?.scrollIntoView({ block: "nearest" }); // on a narrow screen the result is below the editor
    if (wrong) return;
    onRun();
    run(latest);
  };

  return (
    <div
      onKeyDown={(event) => {
        if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || event.defaultPrevented) return; // the editor has its own
        event.preventDefault();
        go();
      }}
    >
      {kept.length > 0 && (
        <Notice
          action={
            <>
              <button type="button" className="button small" onClick={() => replace(back)}>
                Restore it
              </button>
              <button type="button" className="button small" onClick={() => onDraft((before) => ({ ...before, kept: [] }))}>
                Discard it
              </button>
            </>
          }
        >
          Your previous program is saved: <span className="mono">{kept.at(-1)!.files[0]!.name}</span>, for {kept.at(-1)!.environment}.
        </Notice>
      )}
      <div className="filters">
        <label>
          <span className="hidden-text">Environment</span>
          <select className="select" value={program.environment} onChange={(event) => choose(event.target.value)}>
            {!selected && <option value={program.environment}>{program.environment} (not available)</option>}
            {environments.map(({ id }) => (
              <option key={id}>{id}</option>
            ))}
          </select>
        </label>
        {selected && (
          <label>
            <span className="hidden-text">Load a sample</span>
            <select
              className="select"
              value=""
              onChange={(event) => {
                const preset = presetsFor(selected).find(({ name }) => name === event.target.value);
                if (preset && untouched(program)) start(preset);
                else setAsked(preset);
              }}
            >
              <option value="">Sample …</option>
              {presetsFor(selected).map(({ name }) => (
                <option key={name}>{name}</option>
              ))}
            </select>
          </label>
        )}
        {may("use") && (
          <button type="button" className="button primary" onClick={go}>
            Run
          </button>
        )}
        {underWay && (
          <button type="button" className="button danger" disabled={stopping} onClick={() => void stop()}>
            {stopping ? "Stopping …" : "Stop"}
          </button>
        )}
        <LinkButton program={program} />
        {may("use") && <span className="small soft">Or press Ctrl-Enter.</span>}
      </div>
      {caller && !may("use") && (
        <Notice kind="warn" action={<ChangeToken />}>
          You can read and edit this program but not run it. Running needs {describeNeed(needs.use)}; you are <SafeText text={describeCaller(caller)} />.
        </Notice>
      )}
      <div className="playground">
        <Card bare>
          <Files key={swapped} program={program} onChange={edit} onRun={go} />
          <div className="card-body stack run-facts">
            <Field label="Command" hint="Shell syntax is supported.">
              {(tie) => <input {...tie} className="input mono" value={program.command} spellCheck={false} autoComplete="off" onChange={(event) => set({ command: event.target.value })} />}
            </Field>
            <Field label="Arguments" error={wrongArguments(program)} hint={`Separated by spaces; quotes group words. They are added at the end of the command, or in place of "$@".`}>
              {(tie) => <input {...tie} className="input mono" value={program.args} placeholder="None" spellCheck={false} autoComplete="off" onChange={(event) => set({ args: event.target.value })} />}
            </Field>
            <Field label="Standard input">
              {(tie) => <textarea {...tie} className="input mono" rows={2} value={program.stdin} placeholder="Empty" spellCheck={false} onChange={(event) => set({ stdin: event.target.value })} />}
            </Field>
          </div>
        </Card>
        <div className="stack">
          <div ref={result} className="stack">
            <Failure error={problem ? new ServerError(problem) : stopError} />
            {may("use") && <Result key={number} linked={linked && swapped === 0} phase={phase} environment={environment} onEnd={ended} onGone={forget} />}
          </div>
          <CallsView program={program} />
        </div>
      </div>
      <Dialog title={`Load the sample for ${asked?.name}?`} open={asked !== undefined} onClose={() => setAsked(undefined)}>
        <p>The sample replaces your program. You can restore your program afterwards.</p>
        <div className="row">
          <button type="button" className="button" onClick={() => setAsked(undefined)}>
            Keep my program
          </button>
          <button type="button" className="button primary" onClick={() => asked && start(asked)}>
            Load the sample
          </button>
        </div>
      </Dialog>
    </div>
  );
}
