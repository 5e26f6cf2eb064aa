package graph

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rockpool/rockpool/compat"
	"github.com/rockpool/rockpool/compat/jobe"
	"github.com/rockpool/rockpool/graph/transport"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/language"
	"github.com/rockpool/rockpool/test/clustertest"
	"github.com/rockpool/rockpool/test/nginxtest"
)

// A proxy ends a request of whose answer nothing arrives. Answers of the API and of the one for
// Jobe begin before that, so that those which take longer arrive.
func TestAnswersThatTakeLongPassAProxy(t *testing.T) {
	for _, test := range []struct {
		name   string
		early  time.Duration
		takes  string // each answer, in seconds
		status int
	}{{"early", 100 * time.Millisecond, "5", http.StatusOK}, {"late", time.Hour, "600", http.StatusGatewayTimeout}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			sleeper := language.Of(language.Recipe{ID: "sleeper", FileName: "x", Run: []string{"sleep", test.takes}, Environments: []runtime.EnvironmentID{"shell"}})
			fake := clustertest.NewFake()
			b := newBedWith(t, fake, fake, bedOptions{site: site{Settings: transport.Settings{Early: test.early}, Languages: sleeper, Compat: []compat.API{jobe.New()}, Counts: new(compat.Counts)}})
			b.environment("shell", 2)
			proxy := nginxtest.Before(t, b.url, "proxy_read_timeout 3s;")
			x := b.start(in{"runnerId": b.claim("shell"), "command": []string{"sleep", test.takes}})
			query, _ := json.Marshal(in{"query": `query($id: ID!) { execution(id: $id, waitFor: 30) { outcome } }`, "variables": in{"id": x}})
			for _, request := range []struct{ path, accept, body, want string }{
				{"/graphql", "application/json", string(query), `{"data":{"execution":{"outcome":"EXITED"}}}`},
				{"/graphql", "application/graphql-response+json", strings.Replace(string(query), "waitFor: 30", "waitFor: 30, more: 1", 1), ""}, // refused immediately
				{"/jobe/index.php/restapi/runs", "application/json", `{"run_spec": {"language_id": "sleeper", "sourcecode": "x"}}`, `"outcome":15`},
			} {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, proxy+request.path, strings.NewReader(request.body))
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Accept", request.accept)
				answer, err := http.DefaultTransport.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				text, err := io.ReadAll(answer.Body)
				_ = answer.Body.Close()
				if err != nil {
					t.Error(err)
				}
				status := test.status
				if request.want == "" {
					status = http.StatusBadRequest
				}
				if answer.StatusCode != status || status == http.StatusOK && (!json.Valid(text) || !strings.Contains(string(text), request.want) || !strings.HasPrefix(answer.Header.Get("Content-Type"), request.accept)) {
					t.Errorf("%s: %s %s", request.path, answer.Status, text)
				}
			}
		})
	}
}
