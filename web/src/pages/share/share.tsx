import { useEffect, type ReactNode } from "react";
import icon from "../../icon.svg";
import type { ServerError } from "../../lib/request";
import { bytes, commandText, duration, moment } from "../../lib/format";
import { graphql, type ResultOf } from "../../lib/graphql";
import { useQuery } from "../../lib/hooks";
import { OutcomeFragment, sentence, verdict } from "../../lib/outcome";
import { useSearchedLog, type SearchedLog } from "../../lib/uselog";
import { LinkBanner } from "../../ui/frame";
import { LogView, NothingPrinted } from "../../ui/logview";
import { Card, Empty, Facts, Failure, Loading, Notice, Page, Tag } from "../../ui/parts";
import { SafeText } from "../../ui/safetext";
import { DownloadButton } from "../execution/download";

const SharedQuery = graphql(
  `
    query Shared($id: ID!) {
      me {
        grant {
          expiresAt
        }
      }
      execution(id: $id) {
        commandLine
        ...OutcomeParts
        timestamps {
          startedAt
        }
      }
    }
  `,
  [OutcomeFragment],
);
type Shared = NonNullable<ResultOf<typeof SharedQuery>["execution"]>;

/**
 * Share is the page of a shared link: an execution's output log and outcome. It uses the link's grant and no other
 * token.
 */
export default function Share({ id, grant }: { id: string; grant: string }) {
  const usable = id !== "" && grant !== "";
  const { data, error, reload } = useQuery(SharedQuery, { id }, { skip: !usable });
  const searched = useSearchedLog(usable ? id : undefined);
  const { started, end, error: refused } = searched.log;
  const ended = end !== undefined;
  useEffect(() => {
    if (started || ended) reload();
  }, [started, ended, reload]);
  return (
    <div className="shared">
      <header className="brand">
        <img src={icon} alt="" width="26" height="26" />
        Rockpool
      </header>
      <div className="page">
        <SharedPage usable={usable} execution={data?.execution ?? undefined} until={data?.me.grant?.expiresAt} searched={searched} error={error ?? refused} retry={reload} tools={<DownloadButton id={id} />} />
      </div>
      <LinkBanner />
    </div>
  );
}

export interface SharedPageProps {
  /** Whether the link has an id and a grant. */
  usable: boolean;
  execution: Shared | undefined;
  /** When the link expires. */
  until: string | undefined;
  searched: SearchedLog;
  error: ServerError | undefined;
  retry: () => void;
  tools: ReactNode;
}

/** SharedPage shows an execution to the holder of a link. It has no controls. */
export function SharedPage({ usable, execution, until, searched, error, retry, tools }: SharedPageProps) {
  const title = "Shared execution";
  const over = ending(usable, error);
  if (!execution) {
    return (
      <Page title={title}>
        {over ? (
          <Empty title={over}>
            {error && (
              <p>
                Server message: <SafeText text={error.message} />.
              </p>
            )}
            <p>Ask the sender of this link for a new one.</p>
          </Empty>
        ) : error ? (
          <Failure error={error} retry={retry} />
        ) : (
          <Loading what="the execution" />
        )}
      </Page>
    );
  }
  const { end, stream } = searched.log;
  const now = { ...execution, ...end };
  const { tone, text } = verdict(now);
  return (
    <Page title={title}>
      {over ? (
        <Notice kind="bad">
          {over}: <SafeText text={error!.message} />. Later output isn't shown. Ask the sender of this link for a new one.
        </Notice>
      ) : (
        <Failure error={error} retry={retry} />
      )}
      <Card>
        <div className="stack">
          <div className="row" aria-live="polite">
            <Tag tone={tone}>{text}</Tag>
            <span className="grow">{sentence(now)}</span>
          </div>
          <Facts>
            {[
              ["Command", <span key="c" className="mono">{commandText(execution.commandLine, 500)}</span>],
              ["Started", execution.timestamps.startedAt ? moment(execution.timestamps.startedAt) : "–"],
              ["Duration", now.usage ? duration(now.usage.wallMs) : "–"],
              ["Output size", now.usage ? bytes(now.usage.outputBytes) : "–"],
              ["Link expires", until ? <span key="u" title={until}>{moment(until)}</span> : "–"],
            ]}
          </Facts>
        </div>
      </Card>
      <Card title="Output" bare>
        <LogView {...searched} label="Output log" tools={over ? undefined : tools} nothing={over ? <Empty title="No output while the link was valid" /> : <NothingPrinted on={stream} ended={end !== undefined} />} />
      </Card>
    </Page>
  );
}

/** ending says why a link doesn't work; undefined if it works. */
function ending(usable: boolean, error: ServerError | undefined): string | undefined {
  if (!usable) return "This link is incomplete";
  switch (error?.code) {
    case "UNAUTHENTICATED":
      return "This link is no longer valid";
    case "FORBIDDEN":
      return "This link doesn't allow watching";
    case "EXECUTION_NOT_FOUND":
      return "The execution of this link is no longer kept";
    default:
      return undefined;
  }
}
