/** Owner shows the tenant of an object, and whether it is shared. */
export function Owner({ tenant, shared = false }: { tenant: string; shared?: boolean }) {
  return (
    <span className="owner" title={shared ? `Tenant ${tenant}; every tenant may use it` : `Tenant ${tenant}`}>
      {tenant}
      {shared && ", shared"}
    </span>
  );
}
