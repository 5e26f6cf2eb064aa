package nomadtest

import (
	"context"
	_ "embed" // the policy
	"fmt"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// Policy is what Rockpool needs to be allowed, in the namespace default: the
// policy of docs/nomad.md.
//
//go:embed policy.hcl
var Policy string

// makeToken makes the token of the tests, and the one of which it is made.
func (n *Nomad) makeToken(ctx context.Context) error {
	err := try(ctx, n.server, "no leader", func() error {
		_, _, err := n.api.ACLTokens().BootstrapOpts(n.management, nil)
		return err
	})
	if err != nil {
		return err
	}
	rules := strings.Replace(Policy, `"default"`, fmt.Sprintf("%q", n.options.Namespace), 1)
	policy := &api.ACLPolicy{Name: "rockpool", Rules: rules}
	if _, err := n.api.ACLPolicies().Upsert(policy, nil); err != nil {
		return err
	}
	token, _, err := n.api.ACLTokens().Create(&api.ACLToken{Name: "rockpool", Type: "client", Policies: []string{policy.Name}}, nil)
	if err != nil {
		return err
	}
	n.token = token.SecretID
	return nil
}
