package transport

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rockpool/rockpool/test/wait"
)

func (b *bed) do(t *testing.T, method, query, body string, header ...string) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, b.url+"/"+query, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(text)
}

func TestStatusAndTypeOfAnswers(t *testing.T) {
	b := newBed(t, Settings{})
	const gql, plain = typeResponse + "; charset=utf-8", typeJSON + "; charset=utf-8"
	ok := `{"query":"query q { x }"}`
	for name, test := range map[string]struct {
		method, query, body string
		header              []string
		status              int
		kind, answer        string
	}{
		"POST":                       {"POST", "", ok, nil, 200, plain, `{"data":{"name":"q"}}`},
		"POST, new type":             {"POST", "", ok, []string{"Accept", typeResponse}, 200, gql, `{"data":{"name":"q"}}`},
		"POST, browser":              {"POST", "", ok, []string{"Accept", "*/*"}, 200, plain, `{"data":{"name":"q"}}`},
		"POST, qualities":            {"POST", "", ok, []string{"Accept", "application/json;q=0.5, application/graphql-response+json"}, 200, gql, `{"data":{"name":"q"}}`},
		"POST, no type of ours":      {"POST", "", ok, []string{"Accept", "text/html"}, 406, plain, ""},
		"POST, parse error":          {"POST", "", `{"query":"{"}`, nil, 200, plain, ""},
		"POST, parse error, new":     {"POST", "", `{"query":"{"}`, []string{"Accept", typeResponse}, 400, gql, ""},
		"POST, no JSON":              {"POST", "", `{`, nil, 400, plain, ""},
		"POST, no query":             {"POST", "", `{}`, nil, 400, plain, ""},
		"POST, variables a list":     {"POST", "", `{"query":"{x}","variables":[]}`, nil, 400, plain, ""},
		"POST, a form":               {"POST", "", `query={x}`, []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, plain, ""},
		"POST, text":                 {"POST", "", ok, []string{"Content-Type", "text/plain"}, 415, plain, ""},
		"POST, another charset":      {"POST", "", ok, []string{"Content-Type", "application/json; charset=utf-16"}, 415, plain, ""},
		"POST, subscription":         {"POST", "", `{"query":"subscription silent { x }"}`, nil, 200, plain, ""},
		"GET":                        {"GET", "?query=query+q+{x}", "", nil, 200, plain, `{"data":{"name":"q"}}`},
		"GET, no query":              {"GET", "", "", nil, 400, plain, ""},
		"GET, variables no JSON":     {"GET", "?query={x}&variables=a", "", nil, 400, plain, ""},
		"GET, mutation":              {"GET", "?query=mutation+m+{x}", "", nil, 405, plain, ""},
		"GET, mutation for events":   {"GET", "?query=mutation+m+{x}", "", []string{"Accept", typeEvents}, 405, plain, ""},
		"GET, invalid UTF-8":         {"GET", "?query=%FF", "", nil, 400, plain, ""},
		"POST for events, no query":  {"POST", "", `{}`, []string{"Accept", typeEvents}, 400, plain, ""},
		"POST for events, parse err": {"POST", "", `{"query":"{"}`, []string{"Accept", typeEvents}, 200, typeEvents + "; charset=utf-8", ""},
	} {
		response, text := b.do(t, test.method, test.query, test.body, test.header...)
		if response.StatusCode != test.status || response.Header.Get("Content-Type") != test.kind || test.answer != "" && text != test.answer {
			t.Errorf("%s: %d %s %s", name, response.StatusCode, response.Header.Get("Content-Type"), text)
		}
		if test.answer == "" && (strings.Contains(text, `"data"`) || !strings.Contains(text, `"errors"`)) {
			t.Errorf("%s: %s", name, text)
		}
		if allow := response.Header.Get("Allow"); test.status == 405 && allow != "POST" {
			t.Errorf("%s: allowed is %q", name, allow)
		}
	}
}

func TestServerSentEvents(t *testing.T) {
	b := newBed(t, Settings{})
	three := "?query=" + url.QueryEscape("subscription three { x }")
	next := func(n string) string {
		return "id: " + n + "\nevent: next\ndata: {\"data\":{\"n\":" + n + ",\"text\":\"\"}}\n\n"
	}
	const complete = "event: complete\ndata: \n\n"
	if _, text := b.do(t, "GET", three, "", "Accept", typeEvents); text != next("1")+next("2")+next("3")+complete {
		t.Errorf("%s", text)
	}
	if _, text := b.do(t, "GET", three, "", "Accept", typeEvents, "Last-Event-ID", "2"); text != next("3")+complete {
		t.Errorf("resumed: %s", text)
	}
	if _, text := b.do(t, "POST", "", `{"query":"query q { x }"}`, "Accept", typeEvents); text != "event: next\ndata: {\"data\":{\"name\":\"q\"}}\n\n"+complete {
		t.Errorf("a query: %s", text)
	}
	if _, text := b.do(t, "POST", "", `{"query":"subscription refused { x }"}`, "Accept", typeEvents); !strings.HasPrefix(text, `event: next`+"\n"+`data: {"errors":[{"message":"no such execution"}],"data":null}`) || !strings.HasSuffix(text, complete) {
		t.Errorf("refused: %s", text)
	}
	b.idle(t)
}

func TestEventsKeepAlive(t *testing.T) {
	b := newBed(t, Settings{Keepalive: time.Millisecond})
	conn, reader := b.events(t, "silent", 0)
	for comments := 0; comments < 5; {
		line, err := reader.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if line == ":\n" {
			comments++
		}
	}
	conn.Close()
	b.idle(t)
}

func FuzzDecodeParams(f *testing.F) {
	for _, seed := range []string{`{"query":"{x}"}`, `{"query":"{x}","variables":{"a":[1,"\"]"]}}`, `[]`, `{"query":1}`, "{\"query\":\"\xff\"}", `null`, `{"query":"\u0000"} x`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		params, err := (&reservation{}).decodeParams(t.Context(), in)
		if err == nil && (params == nil || !json.Valid(in) || !utf8.Valid(in)) {
			t.Fatalf("%q was taken", in)
		}
	})
}

// Each transport reports its operations with the context of their request. It doesn't report other
// requests.
func TestOperationsAreReported(t *testing.T) {
	reported := make(chan string, 10)
	b := newBed(t, Settings{Operation: func(ctx context.Context, kind, name string) {
		if ctx.Value(http.LocalAddrContextKey) == nil {
			t.Error("its request isn't known")
		}
		reported <- kind + " " + name
	}})
	want := func(want string) {
		t.Helper()
		if got := wait.Receive(t, reported, want); got != want {
			t.Errorf("%s instead of %s", got, want)
		}
	}
	post := func(query string) { b.do(t, http.MethodPost, "", `{"query":"`+query+`"}`, "Content-Type", typeJSON) }
	post("mutation m { x }")
	want("mutation m")
	b.do(t, http.MethodGet, "?query="+url.QueryEscape("{ x }"), "")
	want("query ")
	post("{")
	_, _, _ = b.getEvents(t, "subscription three { x }")
	want("subscription three")
	p := b.hello(t)
	p.subscribe("1", "silent")
	want("subscription silent")
}
