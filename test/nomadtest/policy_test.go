package nomadtest

import (
	"os"
	"strings"
	"testing"
)

func TestThePolicyIsThatOfTheDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../docs/nomad.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "```hcl\n"+Policy+"```\n") {
		t.Error("docs/nomad.md hasn't the policy that the tests use, policy.hcl")
	}
}
