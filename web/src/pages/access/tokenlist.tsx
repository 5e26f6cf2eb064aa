import { ago, moment, short } from "../../lib/format";
import { graphql, type ResultOf } from "../../lib/graphql";
import { useNow } from "../../lib/time";
import { visible } from "../../lib/visible";
import { Tag, type Tone } from "../../ui/parts";
import { SafeText } from "../../ui/safetext";

export const TokenFragment = graphql(`
  fragment TokenParts on Token {
    id
    kind
    name
    tenant
    role
    createdAt
    createdBy
    expiresAt
    revokedAt
    lastUsedAt
  }
`);
export type Token = ResultOf<typeof TokenFragment>;

/** standing returns a token's state: valid, expired or revoked. */
export function standing(token: Pick<Token, "expiresAt" | "revokedAt">, now: number): { ended: boolean; tone: Tone; text: string; at: string | null } {
  if (token.revokedAt) return { ended: true, tone: "bad", text: "Revoked", at: token.revokedAt };
  if (token.expiresAt && Date.parse(token.expiresAt) <= now) return { ended: true, tone: "quiet", text: "Expired", at: token.expiresAt };
  return { ended: false, tone: "good", text: token.expiresAt ? `Expires ${ago(token.expiresAt, now)}` : "Valid", at: token.expiresAt };
}

export interface TokenListProps {
  tokens: readonly Token[];
  /** Whether to show the tokens' tenants. */
  allTenants: boolean;
  onRevoke: (token: Token) => void;
}

/** TokenList shows tokens: valid ones first, then by age, newest first. */
export function TokenList({ tokens, allTenants, onRevoke }: TokenListProps) {
  const now = useNow();
  const names = new Map(tokens.map(({ id, name }) => [id, name]));
  const rows = tokens
    .map((token) => ({ token, ...standing(token, now) }))
    .sort((a, b) => Number(a.ended) - Number(b.ended) || b.token.createdAt.localeCompare(a.token.createdAt));
  return (
    <div className="list-scroll" tabIndex={0} role="region" aria-label="Table of tokens">
      <table className="list">
        <thead>
          <tr>
            <th>Name</th>
            <th>Role</th>
            {allTenants && <th>Tenant</th>}
            <th>Created</th>
            <th>Created by</th>
            <th>Last used</th>
            <th>State</th>
            <th>
              <span className="hidden-text">Actions</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map(({ token, ended, tone, text, at }) => (
            <tr key={token.id} className={ended ? "soft" : undefined}>
              <td className="break" title={token.id}>
                <SafeText text={token.name} />
                {token.kind === "SESSION" && <span className="small soft"> (signed in)</span>}
              </td>
              <td>{token.role}</td>
              {allTenants && <td className="nowrap">{token.tenant ?? <span className="soft">All</span>}</td>}
              <td className="num nowrap" title={token.createdAt}>{moment(token.createdAt, now)}</td>
              <td className="break" title={token.createdBy || undefined}>{token.createdBy ? <SafeText text={names.get(token.createdBy) ?? short(token.createdBy)} /> : <span className="soft">–</span>}</td>
              <td className="num nowrap" title={token.lastUsedAt ?? undefined}>{token.lastUsedAt ? ago(token.lastUsedAt, now) : "Never"}</td>
              <td className="nowrap" title={at ?? undefined}>
                <Tag tone={tone}>{text}</Tag>
              </td>
              <td className="acts">
                {ended ? (
                  <button type="button" className="button small" aria-label={`Revoke the tokens created with ${visible(token.name)}`} onClick={() => onRevoke(token)}>
                    Revoke its tokens …
                  </button>
                ) : (
                  <button type="button" className="button small danger" aria-label={`Revoke ${visible(token.name)}`} onClick={() => onRevoke(token)}>
                    Revoke …
                  </button>
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
