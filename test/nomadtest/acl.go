package nomadtest

import (
	"context"
	_ "embed" // the policy
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/hashicorp/nomad/api"
)

// Policy is the policy that Rockpool needs in the namespace default: the one of
// docs/guides/nomad.md.
//
//go:embed policy.hcl
var Policy string

// makeToken makes the tests' token, and the management token that it needs.
func (n *Nomad) makeToken(ctx context.Context) error {
	err := try(ctx, n.server, "no leader", func() error {
		_, _, err := n.api.ACLTokens().BootstrapOpts(n.management, nil)
		return err
	})
	if err != nil {
		return err
	}
	n.token, err = n.tokenWith("rockpool", Policy)
	return err
}

// TokenWith returns the secret of a token for one test, with a policy written for the namespace
// default.
func (n *Nomad) TokenWith(t testing.TB, policy string) string {
	t.Helper()
	token, err := n.tokenWith(uuid.NewString(), policy)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// tokenWith stores a policy, with the namespace "default" replaced by this Nomad's, and returns the
// secret of a token with it.
func (n *Nomad) tokenWith(name, policy string) (string, error) {
	rules := strings.Replace(policy, `"default"`, fmt.Sprintf("%q", n.options.Namespace), 1)
	if _, err := n.api.ACLPolicies().Upsert(&api.ACLPolicy{Name: name, Rules: rules}, nil); err != nil {
		return "", err
	}
	token, _, err := n.api.ACLTokens().Create(&api.ACLToken{Name: name, Type: "client", Policies: []string{name}}, nil)
	if err != nil {
		return "", err
	}
	return token.SecretID, nil
}
