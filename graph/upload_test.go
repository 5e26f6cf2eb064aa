package graph

import (
	"bytes"
	"encoding/json"
	"io"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/graph/transport"
)

// A form is the parts of a multipart request, by name and in order.
type form [][2]string

func (f form) body(t testing.TB) (body, kind string) {
	t.Helper()
	var out bytes.Buffer
	w := multipart.NewWriter(&out)
	for _, part := range f {
		if err := w.WriteField(part[0], part[1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String(), w.FormDataContentType()
}

func (f form) send(t testing.TB, url string, header http.Header) answer {
	t.Helper()
	body, kind := f.body(t)
	all := http.Header{"Content-Type": {kind}, "Graphql-Require-Preflight": {"1"}}
	for name, values := range header {
		all[name] = values
	}
	return ask(t, "POST", url, body, all)
}

const oneUpload = `mutation($file: Upload!) { uploadFile(runnerId: "RUNNER", path: "a", file: $file) { file { path size } } }`

func operations(query, runner string, variables in) [2]string {
	text, _ := json.Marshal(in{"query": strings.ReplaceAll(query, "RUNNER", runner), "variables": variables})
	return [2]string{"operations", string(text)}
}

func TestUploadFileWritesTheFilesOfAForm(t *testing.T) {
	b := newBed(t)
	b.environment("a", 1)
	runner := b.claim("a")
	const two = `mutation($a: Upload!, $b: Upload!) {
		first: uploadFile(runnerId: "RUNNER", path: "a", file: $a) { file { path size downloadUrl } }
		second: uploadFile(runnerId: "RUNNER", path: "b", file: $b) { file { path size } } }`
	none := in{"a": nil, "b": nil}
	ab := [2]string{"map", `{"0": ["variables.a"], "1": ["variables.b"]}`}
	for name, test := range map[string]struct {
		form  form
		sizes [2]any // of the written files; nil means refused
		error string // in the first error's message
	}{
		"two files":               {form{operations(two, runner, none), ab, {"0", "x"}, {"1", "yy"}}, [2]any{1.0, 2.0}, ""},
		"an empty one":            {form{operations(two, runner, none), ab, {"0", ""}, {"1", "yy"}}, [2]any{0.0, 2.0}, ""},
		"another part first":      {form{operations(two, runner, none), ab, {"note", "zzz"}, {"0", "x"}, {"note", ""}, {"1", "yy"}, {"note", "z"}}, [2]any{1.0, 2.0}, ""},
		"map in other order":      {form{operations(two, runner, none), {"map", `{"1": ["variables.b"], "0": ["variables.a"]}`}, {"0", "x"}, {"1", "yy"}}, [2]any{1.0, 2.0}, ""},
		"files swapped":           {form{operations(two, runner, none), ab, {"1", "yy"}, {"0", "x"}}, [2]any{1.0, nil}, "in the order"},
		"second is missing":       {form{operations(two, runner, none), ab, {"0", "x"}}, [2]any{1.0, nil}, "no part"},
		"one file for two fields": {form{operations(two, runner, none), {"map", `{"0": ["variables.a", "variables.b"]}`}, {"0", "x"}}, [2]any{1.0, nil}, "another field"},
		"first goes wrong":        {form{operations(strings.Replace(two, `"a"`, `""`, 1), runner, none), ab, {"0", strings.Repeat("x", 100_000)}, {"1", "yy"}}, [2]any{nil, 2.0}, "1 to"},
		"a field is skipped":      {form{operations(strings.Replace(two, "first:", "first: uploadFile(runnerId: \"RUNNER\", path: \"a\", file: $b) @skip(if: true) { file { path } } third:", 1), runner, none), ab, {"0", "x"}, {"1", "yy"}}, [2]any{nil, 2.0}, ""},
	} {
		got := test.form.send(t, b.url, nil)
		size := func(field string) any {
			payload, _ := got.Data[field].(map[string]any)
			file, _ := payload["file"].(map[string]any)
			return file["size"]
		}
		// A mutation's payload can't be null. So if one mutation fails, the other's payload is
		// missing too.
		want := test.sizes
		if test.error != "" {
			want = [2]any{}
		}
		if got.Status != 200 || size("first") != want[0] || size("second") != want[1] {
			t.Errorf("%s: %d %v %v", name, got.Status, got.Data, got.Errors)
		}
		if test.error == "" && len(got.Errors) > 0 || test.error != "" && (got.code() != "INVALID_INPUT" || !strings.Contains(got.Errors[0].Message, test.error)) {
			t.Errorf("%s: got %v, want INVALID_INPUT with %q", name, got.Errors, test.error)
		}
	}
}

func TestInvalidFormsAreRefused(t *testing.T) {
	url, _ := served(t, site{Settings: transport.Settings{MaxBody: 2000}})
	one, null := operations(oneUpload, "r", in{"file": nil}), [2]string{"map", `{"0": ["variables.file"]}`}
	file := [2]string{"0", "x"}
	many := make(map[string][]string)
	for i := range 101 {
		many[strconv.Itoa(i)] = nil
	}
	tooMany, _ := json.Marshal(many)
	long := strings.Repeat(" ", 2000)
	for name, test := range map[string]struct {
		form   form
		status int
		code   string
	}{
		"empty form":               {form{}, 400, "INVALID_INPUT"},
		"no map":                   {form{one}, 400, "INVALID_INPUT"},
		"map first":                {form{null, one, file}, 400, "INVALID_INPUT"},
		"file before map":          {form{one, file, null}, 400, "INVALID_INPUT"},
		"a batch":                  {form{{"operations", "[" + one[1] + "]"}, {"map", `{"0": ["0.variables.file"]}`}, file}, 400, "INVALID_INPUT"},
		"operations no JSON":       {form{{"operations", "{"}, null, file}, 400, "INVALID_INPUT"},
		"map no JSON":              {form{one, {"map", "{"}, file}, 400, "INVALID_INPUT"},
		"map a list":               {form{one, {"map", `["variables.file"]`}, file}, 400, "INVALID_INPUT"},
		"map of texts":             {form{one, {"map", `{"0": "variables.file"}`}, file}, 400, "INVALID_INPUT"},
		"unknown variable":         {form{one, {"map", `{"0": ["variables.none"]}`}, file}, 400, "INVALID_INPUT"},
		"beside variables":         {form{one, {"map", `{"0": ["query"]}`}, file}, 400, "INVALID_INPUT"},
		"all variables":            {form{one, {"map", `{"0": ["variables"]}`}, file}, 400, "INVALID_INPUT"},
		"below a null":             {form{one, {"map", `{"0": ["variables.file.x"]}`}, file}, 400, "INVALID_INPUT"},
		"two files for one":        {form{one, {"map", `{"0": ["variables.file"], "1": ["variables.file"]}`}, file}, 400, "INVALID_INPUT"},
		"variable that isn't null": {form{operations(oneUpload, "r", in{"file": "x"}), null, file}, 400, "INVALID_INPUT"},
		"outside a list":           {form{operations(oneUpload, "r", in{"file": []any{nil}}), {"map", `{"0": ["variables.file.1"]}`}, file}, 400, "INVALID_INPUT"},
		"a negative index":         {form{operations(oneUpload, "r", in{"file": []any{nil}}), {"map", `{"0": ["variables.file.-1"]}`}, file}, 400, "INVALID_INPUT"},
		"no variables":             {form{operations(oneUpload, "r", nil), null, file}, 400, "INVALID_INPUT"},
		"too many files":           {form{one, {"map", strings.ReplaceAll(string(tooMany), "null", "[]")}}, 400, "LIMIT_EXCEEDED"},
		"operations too long":      {form{{one[0], one[1] + long}, null, file}, 413, "LIMIT_EXCEEDED"},
		"map too long":             {form{one, {"map", null[1] + long}, file}, 413, "LIMIT_EXCEEDED"},
		"variable of another type": {form{operations(`mutation($file: ID!) { releaseRunner(id: $file) { released } }`, "", in{"file": nil}), null, file}, 200, "INVALID_INPUT"},
		"null without a file":      {form{one, {"map", `{}`}}, 200, "INVALID_INPUT"},
		"a subscription":           {form{operations(`subscription { poolStatus { idle } }`, "", in{"file": nil}), null, file}, 200, "INVALID_INPUT"},
	} {
		if got := test.form.send(t, url, nil); got.Status != test.status || got.code() != test.code || len(got.Data) > 0 {
			t.Errorf("%s: %d %v", name, got.Status, got.Errors)
		}
	}
	// A value in a JSON body is never an Upload.
	for _, value := range []any{nil, "x", in{"files": in{}}, 1} {
		text, _ := json.Marshal(in{"query": oneUpload, "variables": in{"file": value}})
		if got := ask(t, "POST", url, string(text), nil); got.code() != "INVALID_INPUT" || got.Errors[0].Extensions["field"] != "file" {
			t.Errorf("%v: %+v", value, got.Errors)
		}
	}
	// These bodies have a multipart type, but aren't valid multipart.
	for kind, body := range map[string]string{
		"multipart/form-data": "x", "multipart/form-data; boundary=b": "--b\r\nno header\r\n--b--", "multipart/form-data; boundary=c": "",
		"multipart/form-data; boundary=d": "--d\r\nContent-Disposition: form-data; name=\"operations\"\r\n\r\n{", "multipart/form-data; boundary=\"" + strings.Repeat("x", 80) + "\"": "x",
	} {
		if got := ask(t, "POST", url, body, http.Header{"Content-Type": {kind}, "Apollo-Require-Preflight": {"1"}}); got.Status != 400 || got.code() != "INVALID_INPUT" {
			t.Errorf("%s: %d %v", kind, got.Status, got.Errors)
		}
	}
}

// A page of another site can send a form. If it adds a header that forms don't have, its browser
// asks the server first, which refuses.
func TestUploadsFromOtherSitesAreRefused(t *testing.T) {
	url, _ := served(t, site{AllowedOrigins: []string{"https://admin.example.org"}})
	query := form{operations(`{ version }`, "", in{}), {"map", `{}`}}
	for _, name := range transport.PreflightHeaders {
		if got := query.send(t, url, http.Header{"Graphql-Require-Preflight": nil, http.CanonicalHeaderKey(name): {"1"}}); got.Status != 200 || len(got.Errors) > 0 {
			t.Errorf("%s: %d %v", name, got.Status, got.Errors)
		}
		for origin, want := range map[string]string{"https://admin.example.org": "https://admin.example.org", "https://evil.example.org": ""} {
			got := ask(t, "OPTIONS", url, "", http.Header{"Origin": {origin}, "Access-Control-Request-Method": {"POST"}, "Access-Control-Request-Headers": {strings.ToLower(name)}})
			if allowed := got.Header.Get("Access-Control-Allow-Origin"); allowed != want {
				t.Errorf("%s from %s: allowed is %q, want %q", name, origin, allowed, want)
			}
		}
	}
	for name, header := range map[string]http.Header{
		"no header":      {"Graphql-Require-Preflight": nil},
		"an empty one":   {"Graphql-Require-Preflight": {""}},
		"another origin": {"Origin": {"https://evil.example.org"}},
		"another site":   {"Sec-Fetch-Site": {"cross-site"}},
	} {
		if got := query.send(t, url, header); got.Status != 403 || got.code() != "FORBIDDEN" {
			t.Errorf("%s: %d %v", name, got.Status, got.Errors)
		}
	}
}

// Downloads are tested with real sandboxes; these refusals need none.
func TestRefusedDownloadsSayWhy(t *testing.T) {
	url, _ := served(t, site{})
	for _, path := range []string{"/files/x?path=y&expires=1&signature=z", "/outputs/x", "/files/%00?path=%00"} {
		response, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != 403 || !strings.Contains(string(text), `"FORBIDDEN"`) || response.Header.Get("Cache-Control") != "private, no-store" {
			t.Errorf("%s: %s %s %v", path, response.Status, text, response.Header)
		}
	}
}

func TestUploadsRefuseAnInvalidMode(t *testing.T) {
	b := newBed(t)
	b.environment("a", 1)
	runner := b.claim("a")
	for mode, good := range map[string]bool{"null": true, `"0600"`: true, `"8"`: false, `"0"`: false, `"10000"`: false, `""`: false} {
		query := `mutation($file: Upload!) { uploadFile(runnerId: "RUNNER", path: "a", file: $file, mode: ` + mode + `) { file { mode } } }`
		got := form{operations(query, runner, in{"file": nil}), {"map", `{"0": ["variables.file"]}`}, {"0", "x"}}.send(t, b.url, nil)
		refused := len(got.Errors) == 1 && got.Errors[0].Extensions["field"] == "mode"
		if refused == good || len(got.Errors) > 0 == good {
			t.Errorf("%s: %v %+v", mode, got.Data, got.Errors)
		}
	}
}
