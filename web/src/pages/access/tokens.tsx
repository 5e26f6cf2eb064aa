import { useState } from "react";
import { ask } from "../../lib/ask";
import { useCaller } from "../../lib/caller";
import { graphql } from "../../lib/graphql";
import { useAction, useQuery } from "../../lib/hooks";
import { Card, Dialog, Empty, Failure, Loading, Page } from "../../ui/parts";
import { Told } from "../../ui/told";
import { CreateToken } from "./createtoken";
import { TokenFragment, TokenList, type Token } from "./tokenlist";

const TokensQuery = graphql(
  `
    query Tokens($sessions: Boolean) {
      tokens(sessions: $sessions) {
        ...TokenParts
      }
    }
  `,
  [TokenFragment],
);

const RevokeMutation = graphql(`
  mutation RevokeToken($id: ID!) {
    revokeToken(id: $id) {
      revoked
    }
  }
`);

/** The tokens that the caller manages. */
export default function Tokens() {
  const { caller, tenants } = useCaller();
  const [sessions, setSessions] = useState(false);
  const { data, error, reload } = useQuery(TokensQuery, { sessions }, { every: 10_000 });
  const [creating, setCreating] = useState(false);
  const [revoking, setRevoking] = useState<Token>();
  const revoke = useAction(async (id: string) => {
    await ask(RevokeMutation, { id });
    setRevoking(undefined);
    reload();
  });
  const keep = () => {
    revoke.clear();
    setRevoking(undefined);
  };
  return (
    <Page
      title="Tokens"
      actions={
        caller && (
          <button type="button" className="button primary" onClick={() => setCreating(true)}>
            New token
          </button>
        )
      }
    >
      <Failure error={error} retry={reload} />
      {(data || !error) && (
        <Card
          title="Who may use the server"
          bare
          aside={
            <label className="check">
              <input type="checkbox" checked={sessions} onChange={(event) => setSessions(event.target.checked)} />
              Show sign-ins, too
            </label>
          }
        >
          {!data && <Loading what="the tokens" />}
          {data?.tokens.length === 0 && (
            <Empty title="No tokens yet">
              <p>A token lets a program or a person use the server. The one of --token-file isn't listed.</p>
            </Empty>
          )}
          {data && data.tokens.length > 0 && <TokenList tokens={data.tokens} allTenants={caller?.tenant === null} onRevoke={setRevoking} />}
        </Card>
      )}
      {caller && <CreateToken open={creating} caller={caller} tenants={tenants} onCreated={reload} onClose={() => setCreating(false)} />}
      <Dialog title="Revoke this token?" open={revoking !== undefined} onClose={keep}>
        <p className="break">
          Nobody can use <b><Told text={revoking?.name ?? ""} /></b> from then on. What is done with it now ends, and so do the links and the sessions that were made with it. It can't be taken back.
        </p>
        <Failure error={revoke.error} />
        <div className="row">
          <button type="button" className="button" onClick={keep}>
            Keep it
          </button>
          <button type="button" className="button danger" disabled={revoke.busy} onClick={() => revoking && void revoke.run(revoking.id)}>
            Revoke it
          </button>
        </div>
      </Dialog>
    </Page>
  );
}
