package servers

import (
	"context"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/test/bench/bed"
)

// share lets all tenants use the server's environment. Afterwards the server's client uses an
// administrator's token.
func share(ctx context.Context, s *bed.Server) error {
	made, err := client.CreateToken(ctx, s, client.CreateTokenInput{Name: "admin", Role: client.RoleAdmin})
	if err != nil {
		return err
	}
	s.CloseIdle()
	s.Client = client.New(s.URL).WithToken(made.CreateToken.Secret)
	_, err = client.PutEnvironment(ctx, s, client.PutEnvironmentInput{Id: bed.Environment, Shared: new(true)})
	return err
}

// putTenant makes a tenant.
func putTenant(ctx context.Context, s *bed.Server, tenant string) error {
	_, err := client.PutTenant(ctx, s, client.PutTenantInput{Id: tenant})
	return err
}

// tokenOf makes a token for a tenant's clients.
func tokenOf(ctx context.Context, s *bed.Server, tenant string) (secret string, err error) {
	made, err := client.CreateToken(ctx, s, client.CreateTokenInput{Name: "client", Role: client.RoleClient, Tenant: &tenant})
	if err != nil {
		return "", err
	}
	return made.CreateToken.Secret, nil
}

// clientsOf makes a tenant with a token, and n clients that use the token.
func clientsOf(ctx context.Context, s *bed.Server, tenant string, n int) ([]*client.Client, error) {
	if err := putTenant(ctx, s, tenant); err != nil {
		return nil, err
	}
	secret, err := tokenOf(ctx, s, tenant)
	if err != nil {
		return nil, err
	}
	clients := make([]*client.Client, n)
	for i := range clients {
		clients[i] = client.New(s.URL).WithToken(secret)
	}
	return clients, nil
}
