import { useLocation, useSearchParams } from "wouter";
import { useCaller } from "../../lib/caller";
import { graphql } from "../../lib/graphql";
import { useQuery } from "../../lib/hooks";
import { Card, Failure, Loading, Notice, Page } from "../../ui/parts";
import { Unsaved } from "../../ui/unsaved";
import { blank, changed, draftOf, EnvironmentFragment, type Draft } from "./draft";
import { EnvironmentFields } from "./form";
import { useMachine } from "./machine";
import { PutState } from "./putstate";
import { useDraft } from "./usedraft";

const CopyQuery = graphql(
  `
    query EnvironmentToCopy($id: ID!) {
      environment(id: $id) {
        ...EnvironmentParts
      }
    }
  `,
  [EnvironmentFragment],
);

/** NewEnvironment creates an environment; `?from=` names one to copy. */
export default function NewEnvironment() {
  const [search] = useSearchParams();
  const from = search.get("from") ?? "";
  const { data, error, reload } = useQuery(CopyQuery, { id: from }, { skip: from === "" });
  const title = from === "" ? "New environment" : `Copy of ${from}`;
  const above = { title: "Overview", href: "/" };
  if (from !== "" && !data) {
    return (
      <Page title={title} above={above}>
        {error ? <Failure error={error} retry={reload} /> : <Loading what={from} />}
      </Page>
    );
  }
  const initial = data?.environment ? { ...draftOf(data.environment), id: `${from}-copy`, tenant: "" } : blank;
  return (
    <Page title={title} above={above}>
      {from !== "" && data?.environment === null && <Notice kind="warn">{from} no longer exists. The form has the defaults instead.</Notice>}
      <Form initial={initial} />
    </Page>
  );
}

/** Form creates an environment from its draft, and then shows its page. */
function Form({ initial }: { initial: Draft }) {
  const { tenants } = useCaller();
  const machine = useMachine();
  const { draft, change, wrong, refused, put, silent } = useDraft(initial, 0, machine);
  const [, navigate] = useLocation();
  const create = async () => {
    const made = await put.run();
    if (made) navigate(`/environments/${encodeURIComponent(made.id)}`);
  };
  return (
    <form
      className="stack"
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        void create();
      }}
    >
      <Unsaved changes={changed(initial, draft).length > 0} />
      <Card>
        <EnvironmentFields draft={draft} isNew tenants={tenants} machine={machine} wrong={wrong} refused={refused} onChange={change} />
      </Card>
      {put.error?.code === "CONFLICT" ? <Notice kind="bad">An environment {draft.id} already exists. Choose another name.</Notice> : <PutState silent={silent} error={put.error} retry={() => void create()} />}
      <div className="row">
        <button type="submit" className="button primary" disabled={put.busy}>
          Create the environment
        </button>
      </div>
    </form>
  );
}
