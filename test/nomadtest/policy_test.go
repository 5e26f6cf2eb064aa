package nomadtest

import (
	"os"
	"strings"
	"testing"
)

func TestPolicyMatchesTheDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../docs/guides/nomad.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "```hcl\n"+Policy+"```\n") {
		t.Error("the policy in docs/guides/nomad.md differs from test/nomadtest/policy.hcl")
	}
}
