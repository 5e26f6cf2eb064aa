package connection

import (
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/runtime"
)

func TestLinksToNomadsPages(t *testing.T) {
	for _, test := range []struct{ set, address, namespace, region, job, evaluation string }{
		{"", "http://n:4646", "", "", "http://n:4646/ui/jobs/a-runner-1@default", "http://n:4646/ui/evaluations?currentEval=e&namespace=default"},
		{"", "http://n:4646/", "pool", "eu", "http://n:4646/ui/jobs/a-runner-1@pool?region=eu", "http://n:4646/ui/evaluations?currentEval=e&namespace=pool&region=eu"},
		{"https://nomad.example.org/ui/", "http://n:4646", "", "", "https://nomad.example.org/ui/jobs/a-runner-1@default", "https://nomad.example.org/ui/evaluations?currentEval=e&namespace=default"},
		{"https://nomad.example.org", "unix:///run/nomad.sock", "", "", "https://nomad.example.org/ui/jobs/a-runner-1@default", "https://nomad.example.org/ui/evaluations?currentEval=e&namespace=default"},
		{"", "unix:///run/nomad.sock", "", "", "", ""},
		{"", "http://user:secret@n:4646", "", "", "", ""}, // from NOMAD_ADDR: not for every browser
	} {
		u := newPages(test.set, api.Config{Address: test.address, Namespace: test.namespace, Region: test.region})
		if job, evaluation := u.Job("a-runner-1"), u.Evaluation("e"); job != test.job || evaluation != test.evaluation {
			t.Errorf("%+v: %q, %q", test, job, evaluation)
		}
	}
	for _, wrong := range []string{"nomad.example.org", "https://u:p@nomad.example.org", "javascript:alert(1)", "https:///ui", "https://n/?a=b"} {
		_, err := New(Config{UIURL: wrong}, &Group{})
		if runtime.CodeOf(err) != runtime.CodeInvalidInput {
			t.Errorf("%s: got %v, want INVALID_INPUT", wrong, err)
		}
	}
}
