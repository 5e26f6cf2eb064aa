import { useEffect, type ReactNode } from "react";
import icon from "../../icon.svg";
import type { ServerError } from "../../lib/ask";
import { bytes, commandText, duration, moment } from "../../lib/format";
import { graphql, type ResultOf } from "../../lib/graphql";
import { useQuery } from "../../lib/hooks";
import { OutcomeFragment, sentence, verdict } from "../../lib/outcome";
import { useSearchedLog, type SearchedLog } from "../../lib/uselog";
import { LinkBanner } from "../../ui/frame";
import { LogView, NothingPrinted } from "../../ui/logview";
import { Card, Empty, Facts, Failure, Loading, Notice, Page, Tag } from "../../ui/parts";
import { Told } from "../../ui/told";
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
        marks {
          startedAt
        }
      }
    }
  `,
  [OutcomeFragment],
);
type Shared = NonNullable<ResultOf<typeof SharedQuery>["execution"]>;

/** The page of a shared link: what one execution prints, and how it ended. It uses the grant of the link and no other token. */
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
  /** When the link ends. */
  until: string | undefined;
  searched: SearchedLog;
  error: ServerError | undefined;
  retry: () => void;
  tools: ReactNode;
}

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
                The server says: <Told text={error.message} />.
              </p>
            )}
            <p>Ask for a new link where you got this one.</p>
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
          {over}: <Told text={error!.message} />. What was printed since isn't shown. Ask for a new link where you got this one.
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
              ["Began", execution.marks.startedAt ? moment(execution.marks.startedAt) : "–"],
              ["Took", now.usage ? duration(now.usage.wallMs) : "–"],
              ["Printed", now.usage ? bytes(now.usage.outputBytes) : "–"],
              ["This link ends", until ? <span key="u" title={until}>{moment(until)}</span> : "–"],
            ]}
          </Facts>
        </div>
      </Card>
      <Card title="Output" bare>
        <LogView {...searched} label="What it printed" tools={over ? undefined : tools} nothing={over ? <Empty title="Nothing was printed while the link worked" /> : <NothingPrinted on={stream} ended={end !== undefined} />} />
      </Card>
    </Page>
  );
}

/** Why a link shows nothing (any more); undefined while it does. */
function ending(usable: boolean, error: ServerError | undefined): string | undefined {
  if (!usable) return "This link is incomplete";
  switch (error?.code) {
    case "UNAUTHENTICATED":
      return "This link has ended";
    case "FORBIDDEN":
      return "This link isn't for watching";
    case "EXECUTION_NOT_FOUND":
      return "This link is for no execution that is kept";
    default:
      return undefined;
  }
}
