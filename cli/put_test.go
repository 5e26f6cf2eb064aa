package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/client"
)

func TestEmptyListsArePut(t *testing.T) {
	for name, c := range map[string]envPut{
		"ports":     {ID: "a", NoPorts: true},
		"variables": {ID: "a", NoVariables: true},
		"neither":   {ID: "a"},
		"file":      {Filename: "-"},
	} {
		all, err := c.inputs(strings.NewReader("id: a\nvariables: []\nnetwork: {exposedPorts: []}\n"))
		if err != nil {
			t.Fatal(err)
		}
		text, _ := json.Marshal(all[0])
		ports, variables := strings.Contains(string(text), `"exposedPorts":[]`), strings.Contains(string(text), `"variables":[]`)
		if ports != (name == "ports" || name == "file") || variables != (name == "variables" || name == "file") {
			t.Errorf("%s: %s", name, text)
		}
	}
}

func TestPutsSayWhatTheyWaitFor(t *testing.T) {
	image := "r.example/x"
	for want, input := range map[string]client.PutEnvironmentInput{"the image r.example/x from its registry": {Id: "a", Image: &image}, "the environment a": {Id: "a"}} {
		if got := subject(input); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
