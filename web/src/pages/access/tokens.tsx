import { useState } from "react";
import { request } from "../../lib/request";
import { useCaller } from "../../lib/caller";
import { graphql } from "../../lib/graphql";
import { useAction, useQuery } from "../../lib/hooks";
import { Card, Empty, Failure, Loading, Page } from "../../ui/parts";
import { CreateToken } from "./createtoken";
import { RevokeToken } from "./revoketoken";
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
  mutation RevokeToken($id: ID!, $alsoMade: Boolean) {
    revokeToken(id: $id, alsoMade: $alsoMade) {
      revoked
    }
  }
`);

/** Tokens shows the tokens that the caller manages. */
export default function Tokens() {
  const { caller, tenants } = useCaller();
  const [sessions, setSessions] = useState(false);
  const { data, error, reload } = useQuery(TokensQuery, { sessions }, { every: 10_000 });
  const [creating, setCreating] = useState(false);
  const [revoking, setRevoking] = useState<Token>();
  const revoke = useAction(async (id: string, alsoMade: boolean) => {
    await request(RevokeMutation, { id, alsoMade });
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
          title="All tokens"
          bare
          aside={
            <label className="check">
              <input type="checkbox" checked={sessions} onChange={(event) => setSessions(event.target.checked)} />
              Include sign-ins
            </label>
          }
        >
          {!data && <Loading what="the tokens" />}
          {data?.tokens.length === 0 && (
            <Empty title="No tokens yet">
              <p>A token lets a program or a person use the server. The token of --token-file isn't listed.</p>
            </Empty>
          )}
          {data && data.tokens.length > 0 && <TokenList tokens={data.tokens} allTenants={caller?.tenant === null} onRevoke={setRevoking} />}
        </Card>
      )}
      {caller && <CreateToken open={creating} caller={caller} tenants={tenants} onCreated={reload} onClose={() => setCreating(false)} />}
      <RevokeToken token={revoking} busy={revoke.busy} error={revoke.error} onRevoke={(id, alsoMade) => void revoke.run(id, alsoMade)} onClose={keep} />
    </Page>
  );
}
