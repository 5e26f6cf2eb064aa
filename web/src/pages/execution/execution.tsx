import { useEffect, useState, type ReactNode } from "react";
import { Link } from "wouter";
import { useCaller } from "../../lib/caller";
import { commandText, short } from "../../lib/format";
import { graphql, type ResultOf } from "../../lib/graphql";
import { useAction, useQuery } from "../../lib/hooks";
import { OutcomeFragment, sentence, verdict } from "../../lib/outcome";
import { useSearchedLog } from "../../lib/uselog";
import { CancelDialog, signal, SignalChoice } from "../../ui/control";
import { Labels } from "../../ui/labels";
import { LogView, NothingPrinted } from "../../ui/logview";
import { Card, Empty, Facts, Failure, Loading, Notice, Page, Tag } from "../../ui/parts";
import { DownloadButton } from "./download";
import { Feed } from "./feed";
import { ShareButton } from "./sharebutton";
import { Usage, UsageFragment } from "./usage";
import { Waterfall, WaterfallFragment } from "./waterfall";
import { SafeText } from "../../ui/safetext";

const ExecutionQuery = graphql(
  `
    query Execution($id: ID!) {
      execution(id: $id) {
        id
        tenant
        runnerId
        environmentId
        batchId
        caseIndex
        commandLine
        labels {
          name
          value
        }
        startedWarm
        coldReason
        ...OutcomeParts
        usage {
          ...UsageParts
        }
        timestamps {
          ...WaterfallTimestamps
        }
      }
    }
  `,
  [OutcomeFragment, UsageFragment, WaterfallFragment],
);
type Details = NonNullable<ResultOf<typeof ExecutionQuery>["execution"]>;

/** Execution shows one execution: its output log, outcome, usage and timeline. */
export default function Execution({ id }: { id: string }) {
  const { may, showTenants } = useCaller();
  const { data, error, reload } = useQuery(ExecutionQuery, { id });
  const searched = useSearchedLog(id);
  const followed = searched.log;
  const execution = data?.execution;
  const ended = followed.end !== undefined;
  useEffect(() => {
    if (followed.started || ended) reload();
  }, [followed.started, ended, reload]);

  const above = { title: "Executions", href: "/executions" };
  if (!execution) {
    return (
      <Page title={`Execution ${short(id)}`} above={above}>
        {error?.code === "EXECUTION_NOT_FOUND" ? (
          <Empty title="Execution not found">
            <p>It doesn't exist, or it ended and is no longer kept.</p>
            <Link href="/executions" className="button">
              All executions
            </Link>
          </Empty>
        ) : error ? (
          <Failure error={error} retry={reload} />
        ) : (
          <Loading what="the execution" />
        )}
      </Page>
    );
  }
  // The log can report the start and the end before the query is repeated.
  const now = { ...execution, ...(followed.started && execution.state === "PENDING" && { state: "RUNNING" as const }), ...followed.end };
  const { tone, text } = verdict(now);
  const running = now.state === "RUNNING";
  return (
    <Page
      title={commandText(execution.commandLine, 120) || "Execution"}
      above={above}
      actions={
        <>
          {now.state === "FINISHED" && (
            <Link className="button" href={`/executions/${id}/replay`}>
              Replay
            </Link>
          )}
          {may("use") && (
            <>
              <ShareButton id={id} />
              <Link className="button" href={`/terminal/${id}`}>
                Show on a terminal
              </Link>
              {now.state !== "FINISHED" && <Control execution={execution} running={running} />}
            </>
          )}
        </>
      }
    >
      <Card>
        <div className="stack">
          <div className="row" aria-live="polite">
            <Tag tone={tone}>{text}</Tag>
            <span className="grow">{sentence(now)}</span>
            <span className="mono soft break">{id}</span>
          </div>
          <Details of={execution} tenant={showTenants} />
        </div>
      </Card>
      {now.state !== "PENDING" && <Usage id={id} running={running} final={execution.usage} />}
      <Failure error={followed.error} />
      <Card title="Output" bare>
        <LogView
          {...searched}
          own={{ id, began: execution.timestamps.startedAt }}
          label="Output log"
          tools={<DownloadButton id={id} />}
          nothing={<NothingPrinted on={followed.stream} ended={ended} />}
        />
      </Card>
      {running && may("use") && <Feed id={id} />}
      <Card title="Timeline">
        <Waterfall timestamps={execution.timestamps} ended={ended} />
      </Card>
    </Page>
  );
}

/** Details lists an execution's facts. tenant says whether the tenant is one of them. */
function Details({ of, tenant }: { of: Details; tenant: boolean }) {
  const batch: [string, ReactNode][] = of.batchId
    ? [["Batch", <Link key="b" href={`/batches/${of.batchId}`}>{of.caseIndex === null ? "Build" : `Case ${of.caseIndex}`}</Link>]]
    : [];
  return (
    <Facts>
      {[
        ["Environment", <Link key="e" href={`/environments/${encodeURIComponent(of.environmentId)}`}>{of.environmentId}</Link>],
        ["Runner", <Link key="r" className="mono" title={of.runnerId} href={`/executions?runner=${of.runnerId}`}>{short(of.runnerId)}</Link>],
        ...batch,
        ...(tenant ? [["Tenant", of.tenant] satisfies [string, string]] : []),
        ...(of.labels.length > 0 ? [["Labels", <Labels key="l" labels={of.labels} path="/executions" />] satisfies [string, ReactNode]] : []),
        ["Interpreter", of.startedWarm == null ? "–" : of.startedWarm ? "Preloaded" : `Not preloaded: ${of.coldReason}`],
      ]}
    </Facts>
  );
}

/** Control has the buttons that signal and cancel an execution. */
function Control({ execution, running }: { execution: Details; running: boolean }) {
  const [name, setName] = useState("INT");
  const [cancelling, setCancelling] = useState(false);
  const send = useAction(() => signal(execution.id, name));
  return (
    <>
      {running && (
        <span className="row tight">
          <SignalChoice value={name} onChange={setName} />
          <button type="button" className="button" disabled={send.busy} onClick={() => void send.run()}>
            Send
          </button>
        </span>
      )}
      <button type="button" className="button danger" onClick={() => setCancelling(true)}>
        Cancel …
      </button>
      {send.error && <Notice kind="bad"><SafeText text={send.error.message} /></Notice>}
      <CancelDialog execution={cancelling ? execution : undefined} onClose={() => setCancelling(false)} />
    </>
  );
}
