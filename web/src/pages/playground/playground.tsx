import { useEffect, useEffectEvent, useRef, useState } from "react";
import { Link } from "wouter";
import { useCaller } from "../../lib/caller";
import { graphql } from "../../lib/graphql";
import { useQuery } from "../../lib/hooks";
import { session } from "../../lib/session";
import { Empty, Failure, Loading, Notice, Page } from "../../ui/parts";
import { Bench } from "./bench";
import { load, opened, Saver, type Draft } from "./draft";
import { begin, type EnvironmentImage } from "./presets";
import { unpack } from "./programlink";

const ChoicesQuery = graphql(`
  query PlaygroundEnvironments {
    environments {
      id
      image
    }
  }
`);

/** Playground edits and runs a program. The program is kept in this browser, and a link reproduces it. */
export default function Playground() {
  const { data, error, reload } = useQuery(ChoicesQuery, {});
  const { may } = useCaller();
  const environments = data?.environments;
  const { draft, version, linked, broken, unsaved, change, flush } = useDraft(environments);
  return (
    <Page title="Playground">
      <Failure error={error} retry={reload} />
      {broken && <Notice kind="warn">The link contains no valid program. Part of it may be missing: copy the whole link.</Notice>}
      {unsaved && <Notice kind="warn">The latest changes aren't saved: the program is larger than 1 MB, or this browser's storage is full. A reload loses them.</Notice>}
      {!draft && !error && <Loading what="the environments" />}
      {environments?.length === 0 && (
        <Empty title="No environments yet">
          {may("change") ? (
            <Link href="/new-environment" className="button primary">
              Create an environment
            </Link>
          ) : (
            <Link href="/">Go to the overview</Link>
          )}
        </Empty>
      )}
      {draft && environments && environments.length > 0 && <Bench key={version} linked={linked} draft={draft} onDraft={change} onRun={flush} environments={environments} />}
    </Page>
  );
}

/** useDraft returns the program of the address, or else the draft, or else a sample. It saves each change. */
function useDraft(environments: readonly EnvironmentImage[] | undefined) {
  const [draft, setDraft] = useState<Draft>();
  const latest = useRef<Draft>(undefined); // the rendered state can be older
  const [version, setVersion] = useState(0); // counts the programs loaded from links
  const [linked, setLinked] = useState(false); // whether the latest address contained a program
  const [broken, setBroken] = useState(false);
  const [unsaved, setUnsaved] = useState(false);
  const [saver] = useState(() => new Saver((kept) => setUnsaved(!kept)));
  const { flush } = saver;
  useEffect(() => {
    window.addEventListener("pagehide", flush);
    const unlisten = session.listen(flush); // forgetting a token deletes the saved drafts, so save pending ones first
    return () => {
      flush();
      unlisten();
      window.removeEventListener("pagehide", flush);
    };
  }, [flush]);
  const change = (update: (draft: Draft) => Draft): Draft => {
    const next = update(latest.current!);
    if (next !== latest.current) {
      latest.current = next;
      setDraft(next);
      saver.save(next);
    }
    return next;
  };
  const arrive = useEffectEvent(async () => {
    const { search } = window.location;
    const hash = window.location.hash.replace(/^#main$/, ""); // from the skip link, opened in a new tab
    if (hash === "" && draft) return;
    const brought = await unpack(hash.slice(1));
    setBroken(hash.length > 1 && !brought);
    if (window.location.hash !== "" || search !== "") window.history.replaceState(null, "", window.location.pathname); // a reload then shows the draft
    const before = latest.current ?? load();
    const next = brought ? opened(before, brought) : draftFor(before, environments ?? [], search);
    if (next) change(() => next);
    if (!brought) return;
    setLinked(true);
    setVersion((n) => n + 1);
  });
  const known = environments !== undefined;
  useEffect(() => {
    if (!known) return;
    void arrive();
    const again = () => void arrive();
    window.addEventListener("hashchange", again);
    return () => window.removeEventListener("hashchange", again);
  }, [known]);
  return { draft, version, linked, broken, unsaved, change, flush };
}

/** draftFor returns the draft, or a sample if the address names another environment. */
export function draftFor(draft: Draft | undefined, environments: readonly EnvironmentImage[], search: string): Draft | undefined {
  const id = new URLSearchParams(search).get("environment");
  const named = environments.find((environment) => environment.id === id);
  if (draft && (!named || draft.program.environment === named.id)) return draft;
  const chosen = named ?? environments.find((environment) => environment.id === "python") ?? environments[0];
  return chosen && opened(draft, begin(chosen));
}
