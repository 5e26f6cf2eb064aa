package servers

import (
	"context"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/test/bench/bed"
)

// A sharing is a server whose environment all tenants may use.
type sharing struct {
	b *bed.Bed
	s *bed.Server
}

// share shares the environment. The server's client shows an administrator's token from then on.
func share(ctx context.Context, b *bed.Bed, s *bed.Server) (sharing, error) {
	made, err := client.CreateToken(ctx, s, client.CreateTokenInput{Name: "admin", Role: client.RoleAdmin})
	if err != nil {
		return sharing{}, err
	}
	s.CloseIdle()
	s.Client = client.New(s.URL).WithToken(made.CreateToken.Secret)
	_, err = client.PutEnvironment(ctx, s, client.PutEnvironmentInput{Id: bed.Environment, Shared: new(true)})
	return sharing{b, s}, err
}

// put makes a tenant.
func (o sharing) put(ctx context.Context, tenant string) error {
	_, err := client.PutTenant(ctx, o.s, client.PutTenantInput{Id: tenant})
	return err
}

// token makes a token for clients of a tenant.
func (o sharing) token(ctx context.Context, tenant string) (secret string, err error) {
	made, err := client.CreateToken(ctx, o.s, client.CreateTokenInput{Name: "client", Role: client.RoleClient, Tenant: &tenant})
	if err != nil {
		return "", err
	}
	return made.CreateToken.Secret, nil
}

// clients makes a tenant with a token, and so many clients that show it.
func (o sharing) clients(ctx context.Context, tenant string, n int) ([]*client.Client, error) {
	if err := o.put(ctx, tenant); err != nil {
		return nil, err
	}
	secret, err := o.token(ctx, tenant)
	if err != nil {
		return nil, err
	}
	clients := make([]*client.Client, n)
	for i := range clients {
		c := client.New(o.s.URL).WithToken(secret)
		o.b.OnClose(func() error { c.CloseIdle(); return nil })
		clients[i] = c
	}
	return clients, nil
}
