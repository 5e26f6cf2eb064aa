package graph

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/runtime"
)

// script is text that a malicious caller stores for the browsers and terminals of others.
const script = "<script>alert(1)</script>\u202etxt\u2028\u009b2J\x7f\x1b[2J\r\n\ndata: {}\n\"</script>"

// A stored script is returned as it was stored, in JSON with a JSON content type. No character in
// it controls anything.
func TestStoredScriptsStayText(t *testing.T) {
	b, client := tenanted(t, runtime.Quotas{})
	send := func(method, address, body string, header http.Header) (text string, got http.Header) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, b.url+"/graphql"+address, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = header
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		all, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(all), response.Header
	}
	with := func(pairs ...string) http.Header {
		h := client.Clone()
		for i := 0; i < len(pairs); i += 2 {
			h.Set(pairs[i], pairs[i+1])
		}
		return h
	}
	check := func(name, text string, header http.Header, kind, ends string) {
		t.Helper()
		if got, _, _ := strings.Cut(header.Get("Content-Type"), ";"); got != kind || header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", name, header)
		}
		if i := strings.IndexFunc(strings.Trim(text, ends), func(r rune) bool { return r < ' ' && !strings.ContainsRune(ends, r) }); i >= 0 || strings.Contains(text, "\ndata: {}") {
			t.Errorf("%s has control characters: %q", name, text)
		}
	}

	body, _ := json.Marshal(in{
		"query":     `mutation($in: ClaimRunnerInput!) { claimRunner(input: $in) { runner { id } } }`,
		"variables": in{"in": in{"environmentId": "a", "waitFor": 60, "labels": []in{{"name": script, "value": script}}}},
	})
	text, header := send(http.MethodPost, "", string(body), with("Content-Type", "application/json"))
	check("the claim", text, header, "application/json", "")
	const query = `{ runners { nodes { claim { labels { name value } } } } }`
	posted, _ := json.Marshal(in{"query": query})
	for name, ask := range map[string]func() (string, http.Header){
		"POST": func() (string, http.Header) {
			return send(http.MethodPost, "", string(posted), with("Content-Type", "application/json"))
		},
		"GET": func() (string, http.Header) {
			return send(http.MethodGet, "?query="+url.QueryEscape(query), "", with())
		},
		"SSE": func() (string, http.Header) {
			return send(http.MethodPost, "", string(posted), with("Content-Type", "application/json", "Accept", "text/event-stream"))
		},
	} {
		text, header := ask()
		if name != "SSE" {
			check(name, text, header, "application/json", "")
		} else {
			check(name, text, header, "text/event-stream", "\n")
			for line := range strings.Lines(text) {
				if answer, ok := strings.CutPrefix(line, `data: {"data"`); ok {
					text = `{"data"` + answer
				}
			}
		}
		var got struct {
			Data struct {
				Runners struct {
					Nodes []struct {
						Claim *struct {
							Labels []struct{ Name, Value string }
						}
					}
				}
			}
		}
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatalf("%s: %q: %v", name, text, err)
		}
		found := false
		for _, r := range got.Data.Runners.Nodes {
			found = found || r.Claim != nil && len(r.Claim.Labels) == 1 && r.Claim.Labels[0].Name == script && r.Claim.Labels[0].Value == script
		}
		if !found {
			t.Errorf("%s returns %s", name, text)
		}
	}

	wrong, _ := json.Marshal(in{"query": `{ runner(id: "<script>") { nothing } }`, "operationName": script})
	text, header = send(http.MethodPost, "", string(wrong), with("Content-Type", "application/json"))
	check("a wrong document", text, header, "application/json", "")
	text, header = send(http.MethodGet, "?query="+url.QueryEscape(script), "", with())
	check("no document", text, header, "application/json", "")
	text, header = send(http.MethodPut, "", script, with())
	check("a wrong method", text, header, "application/json", "")
	text, header = send(http.MethodPost, "", script, with("Authorization", "Bearer "+script[:20]))
	check("a wrong token", text, header, "application/json", "")
}

// A token's name has no control characters, and the audit log has none that looks like another
// character.
func TestStoredScriptsInNames(t *testing.T) {
	b, _ := tenanted(t, runtime.Quotas{})
	create := func(name string) answer {
		t.Helper()
		body, _ := json.Marshal(in{
			"query":     `mutation($in: CreateTokenInput!) { createToken(input: $in) { token { name } secret } }`,
			"variables": in{"in": in{"name": name, "role": "ADMIN", "tenant": "physics"}},
		})
		return ask(t, http.MethodPost, b.url, string(body), http.Header{"Authorization": {"Bearer " + testToken}})
	}
	for _, control := range []string{"\x1b", "\n", "\x00", "\u009b", "\x7f"} {
		if got := create("a" + control); got.code() != "INVALID_INPUT" {
			t.Errorf("%q: %+v", control, got)
		}
	}
	const name = "<script>alert(1)</script>\u202etxt"
	made := create(name).Data["createToken"].(in)
	if got := made["token"].(in)["name"]; got != name {
		t.Errorf("got %q, want %q", got, name)
	}
	b.sendAs(made["secret"].(string), `mutation { releaseRunner(id: "none") { released } }`)
	got, _ := json.Marshal(b.sendAs(testToken, `{ auditLog(action: "releaseRunner") { nodes { actorName } } }`).Data)
	var log struct {
		AuditLog struct{ Nodes []struct{ ActorName string } }
	}
	if err := json.Unmarshal(got, &log); err != nil || len(log.AuditLog.Nodes) != 1 || log.AuditLog.Nodes[0].ActorName != "<script>alert(1)</script>\ufffdtxt" {
		t.Errorf("%s, %v", got, err)
	}
}
