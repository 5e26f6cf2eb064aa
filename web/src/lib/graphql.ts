import { initGraphQLTada } from "gql.tada";
import type { introspection } from "../graphql-env";

/** graphql types documents by the schema. Fragments are unmasked, so props have their type. */
export const graphql = initGraphQLTada<{
  introspection: introspection;
  disableMasking: true;
  scalars: { Time: string; Int64: number; Base64: string; Cursor: string; Upload: File };
}>();

export type { ResultOf, TadaDocumentNode, VariablesOf } from "gql.tada";
