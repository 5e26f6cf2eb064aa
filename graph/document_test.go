package graph

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/99designs/gqlgen/graphql/executor"
	"github.com/99designs/gqlgen/graphql/handler/extension"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/graph/generated"
	"github.com/rockpool/rockpool/graph/transport"
	"github.com/rockpool/rockpool/runtime"
)

func body(query string) string {
	text, _ := json.Marshal(map[string]string{"query": query})
	return string(text)
}

// processorTime returns the CPU time of this process, server and client together.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// Without limits, some of these took minutes, and others all memory. The baseline is the CPU time
// for reading the longest allowed document.
func TestCostlyDocumentsAreRefusedEarly(t *testing.T) {
	url, logs := served(t, site{})
	many := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	began := processorTime(t)
	if got := ask(t, "POST", url, body("{ version } # "+strings.Repeat("x", 30<<20)), nil); got.Status != 200 || len(got.Errors) > 0 {
		t.Fatalf("a comment of 30 MB: %d %.300v", got.Status, got.Errors)
	}
	floor := processorTime(t) - began
	doubling := "{ ...f0 }"
	for i := range 40 {
		doubling += fmt.Sprintf(" fragment f%d on Query { ...f%d ...f%d }", i, i+1, i+1)
	}
	doubling += " fragment f40 on Query { version }"
	for name, test := range map[string]struct {
		body   string
		status int
		code   string
	}{
		"300 aliases of 1,000 items":   {body("{ " + many(300, "a%d: runners(first: 1000) { nodes { id state } } ") + "}"), 200, "LIMIT_EXCEEDED"},
		"50 aliases of 1,000 items":    {body("{ " + many(50, "a%d: runners(first: 1000) { nodes { id state } } ") + "}"), 200, "LIMIT_EXCEEDED"},
		"a deferred part":              {body("{ environments { id ... @defer { pool { idle } } } }"), 200, "INVALID_INPUT"},
		"a deferred fragment":          {body("{ environments { ...e @defer } } fragment e on Environment { id }"), 200, "INVALID_INPUT"},
		"19,000 bad fields":            {body("{ " + many(19_000, "bad%d ") + "}"), 200, "LIMIT_EXCEEDED"},
		"20,000 bad fields":            {body("{ " + many(20_000, "bad%d ") + "}"), 200, "LIMIT_EXCEEDED"},
		"15,000 times the same field":  {body("{ " + strings.Repeat("version ", 15_000) + "}"), 200, "LIMIT_EXCEEDED"},
		"30,000 directives":            {body("{ version " + strings.Repeat("@a ", 30_000) + "}"), 200, "LIMIT_EXCEEDED"},
		"9,000 directives":             {body("{ version " + strings.Repeat("@a ", 9_000) + "}"), 200, "LIMIT_EXCEEDED"},
		"5,000 levels":                 {body(strings.Repeat("{ a ", 5_000) + strings.Repeat("}", 5_000)), 200, "LIMIT_EXCEEDED"},
		"fragments that double":        {body(doubling), 200, "LIMIT_EXCEEDED"},
		"fragments in a circle":        {body("{ ...a } fragment a on Query { ...b } fragment b on Query { ...a }"), 200, "INVALID_INPUT"},
		"5,000 fragments":              {body("{ version } " + many(5_000, "fragment f%d on Query { version } ")), 200, "LIMIT_EXCEEDED"},
		"a list 9,000 deep":            {body("{ runners(states: " + strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000) + ") { totalCount } }"), 200, "LIMIT_EXCEEDED"},
		"JSON of depth 10,000":         {`{"query": "{ version }", "variables": {"a": ` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `}}`, 400, "LIMIT_EXCEEDED"},
		"JSON of depth 10 million":     {strings.Repeat("[", 10_000_000), 400, "LIMIT_EXCEEDED"},
		"10 million values":            {`{"query": "{ version }", "variables": {"a": [` + strings.Repeat("1,", 10_000_000) + `1]}}`, 400, "LIMIT_EXCEEDED"},
		"invalid UTF-8":                {"{\"query\": \"{ version }\", \"variables\": {\"a\": \"\xff\"}}", 400, "INVALID_INPUT"},
		"invalid UTF-8 in the query":   {"{\"query\": \"{ version # \xc3\x28 \n }\"}", 400, "INVALID_INPUT"},
		"a string of 30 MB":            {body(`{ runner(id: "` + strings.Repeat("x", 30<<20) + `") { nope } }`), 200, "INVALID_INPUT"},
		"a name of 30 MB":              {body("{ " + strings.Repeat("x", 30<<20) + " }"), 200, "LIMIT_EXCEEDED"},
		"a variable's name of 1 MB":    {`{"query": "mutation($i: WriteStdinInput!) { writeStdin(input: $i) { offset } }", "variables": {"i": {"executionId": "1", "` + strings.Repeat("x", 1<<20) + `": 1}}}`, 200, "INVALID_INPUT"},
		"a string of 1 MB for an enum": {body(`{ runners(states: ["` + strings.Repeat("x", 1<<20) + `"]) { totalCount } }`), 200, "INVALID_INPUT"},
		"more than the body's limit":   {body(strings.Repeat(" ", 33<<20)), 413, "LIMIT_EXCEEDED"},
	} {
		began := processorTime(t)
		got := ask(t, "POST", url, test.body, nil)
		took := processorTime(t) - began
		if got.Status != test.status || got.code() != test.code {
			t.Errorf("%s: %d %.300v", name, got.Status, got.Errors)
		}
		size := 0
		for _, e := range got.Errors {
			size += len(e.Message)
		}
		if len(got.Errors) > 21 || size > 20_000 || took > 20*floor {
			t.Errorf("%s: %d errors of %d bytes after %v, and the floor is %v", name, len(got.Errors), size, took, floor)
		}
	}
	if logs.Len() > 0 {
		t.Errorf("what a client did wrong was logged: %.2000v", logs.All())
	}
}

func TestLongNamesAreFoundOutsideOfStrings(t *testing.T) {
	long := strings.Repeat("x", maxName+1)
	for text, want := range map[string]bool{
		"{ " + long + " }": true, "{ a(b: \"" + long + "\") }": false, "{ a # " + long + "\n b }": false, "{ a # b\n " + long + " }": true,
		`{ a(b: """ ` + long + ` \""" ` + long + ` """) }`: false, `{ a(b: """c""") ` + long + ` }`: true, `{ a(b: "\"` + long + `") }`: false,
		`{ a(b: "") ` + long + ` }`: true, `"""`: false, `"`: false, `"\`: false, long[1:]: false,
	} {
		if err := checkTokens(text); (runtime.CodeOf(err) == runtime.CodeLimitExceeded) != want || err != nil && !want {
			t.Errorf("%.40s: got %v, refused: want %t", text, err, want)
		}
	}
}

func TestResponsesHaveFewErrors(t *testing.T) {
	url, _ := served(t, site{})
	got := ask(t, "POST", url, body("{ "+strings.Repeat("a b c d e f g h i j ", 90)+"}"), nil)
	if len(got.Errors) != 21 || got.Errors[20].Extensions["code"] != "LIMIT_EXCEEDED" {
		t.Errorf("got %d errors, want 20 and LIMIT_EXCEEDED", len(got.Errors))
	}
}

// A body of 200 MB is refused before it is read, or at the limit if its length isn't announced.
func TestHugeBodiesTakeNoMemory(t *testing.T) {
	url, _ := served(t, site{Settings: transport.Settings{MaxBody: 1 << 20}})
	for _, length := range []int64{200 << 20, -1} {
		var before, after goruntime.MemStats
		goruntime.ReadMemStats(&before)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/graphql", io.LimitReader(spaces{}, 200<<20))
		if err != nil {
			t.Fatal(err)
		}
		request.ContentLength = length
		request.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			response.Body.Close()
		}
		// The server may close the connection while the client still writes, so the client may
		// see a write error first.
		if err == nil && response.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("length %d: %d", length, response.StatusCode)
		}
		goruntime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 16<<20 {
			t.Errorf("length %d took %d MiB", length, took>>20)
		}
	}
}

type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func TestIntrospectionCanBeDisabled(t *testing.T) {
	for _, off := range []bool{false, true} {
		url, _ := served(t, site{NoIntrospection: off})
		got := ask(t, "POST", url, body("{ __schema { types { name } } }"), nil)
		if hidden := len(got.Errors) > 0; hidden != off {
			t.Errorf("off is %v: %v", off, got.Errors)
		}
		for _, query := range []string{"{ versio }", "{ runner(idd: 1) { id } }", "{ runners(states: [IDL]) { totalCount } }", "{ ... on Querry { version } }", "query($a: Sting) { version }"} {
			got := ask(t, "POST", url, body(query), nil)
			if len(got.Errors) == 0 {
				t.Fatalf("%s was answered", query)
			}
			text := fmt.Sprint(got.Errors)
			if off && (strings.Contains(text, "Did you mean") || strings.Contains(text, "IDLE")) {
				t.Errorf("%s: %s", query, text)
			}
		}
	}
}

// toolsIntrospection is the longest document that tools send: GraphiQL's.
var toolsIntrospection = `query IntrospectionQuery { __schema { queryType { name kind } mutationType { name kind } subscriptionType { name kind }
		types { ...FullType } directives { name description isRepeatable locations args(includeDeprecated: true) { ...InputValue } } } }
		fragment FullType on __Type { kind name description specifiedByURL fields(includeDeprecated: true) { name description
			args(includeDeprecated: true) { ...InputValue } type { ...TypeRef } isDeprecated deprecationReason }
			inputFields(includeDeprecated: true) { ...InputValue } interfaces { ...TypeRef } enumValues(includeDeprecated: true) { name description isDeprecated deprecationReason }
			possibleTypes { ...TypeRef } }
		fragment InputValue on __InputValue { name description type { ...TypeRef } defaultValue isDeprecated deprecationReason }
		fragment TypeRef on __Type { kind name ` + strings.Repeat("ofType { kind name ", 9) + strings.Repeat("}", 9) + ` }`

func TestIntrospectionOfToolsIsWithinTheBounds(t *testing.T) {
	url, _ := served(t, site{})
	first := ask(t, "POST", url, body(toolsIntrospection), nil)
	again := ask(t, "POST", url, body(toolsIntrospection), nil)
	if len(first.Errors) > 0 || len(first.Data) == 0 || !reflect.DeepEqual(first.Data, again.Data) {
		t.Errorf("%v, %v", first.Errors, again.Errors)
	}
}

// TestIntrospectionHasAPrice checks that an operation can't read the schema many times, neither by
// aliases nor by nesting.
func TestIntrospectionHasAPrice(t *testing.T) {
	url, _ := served(t, site{})
	many := func(n int, of string) string {
		text := "{"
		for i := range n {
			text += fmt.Sprintf(" a%d: %s", i, of)
		}
		return text + " }"
	}
	const whole = "__schema { types { name description fields { name description } } }"
	for what, refused := range map[string]string{
		"100 aliases of __schema":          many(100, whole),
		"100 aliases in a fragment":        "{ ...F } fragment F on Query " + many(100, whole),
		"100 aliases of the list of types": "{ __schema " + many(100, "types { name fields { name } }") + " }",
	} {
		got := ask(t, "POST", url, body(refused), nil)
		if got.code() != "LIMIT_EXCEEDED" || !strings.Contains(got.Errors[0].Message, "introspection") {
			t.Errorf("%s: got %v, want LIMIT_EXCEEDED", what, got.Errors)
		}
	}
	for _, small := range []string{many(20, "__schema { queryType { name } }"), many(100, `__type(name: "Runner") { name fields { name } }`), "{ __schema { types { name kind fields { name } } } }"} {
		if got := ask(t, "POST", url, body(small), nil); len(got.Errors) > 0 {
			t.Errorf("%.60s: %v", small, got.Errors)
		}
	}
}

// TestIntrospectionIsCached checks that only answers about the schema alone are kept, and few.
func TestIntrospectionIsCached(t *testing.T) {
	i := newIntrospection(generated.NewExecutableSchema(generated.Config{}).Schema())
	exec := executor.New(generated.NewExecutableSchema(generated.Config{Resolvers: &resolver{version: "1"}}))
	exec.Use(i)
	exec.Use(extension.Introspection{})
	run := func(query string) *graphql.Response {
		ctx := graphql.StartOperationTrace(t.Context())
		op, errs := exec.CreateOperationContext(ctx, &graphql.RawParams{Query: query})
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		respond, ctx := exec.DispatchOperation(ctx, op)
		return respond(ctx)
	}
	first, again := run(toolsIntrospection).Data, run(toolsIntrospection).Data
	if &first[0] != &again[0] {
		t.Error("the answer was made again")
	}
	t.Logf("it has %d bytes", len(first))
	for n := range 3 * keptAnswers {
		run(fmt.Sprintf("{ __schema { queryType { name } } } # %d", n))
	}
	if last := run(toolsIntrospection).Data; &first[0] == &last[0] {
		t.Errorf("more than %d answers are kept", keptAnswers)
	}
	one, two := run("{ version __schema { queryType { name } } }").Data, run("{ version __schema { queryType { name } } }").Data
	if &one[0] == &two[0] {
		t.Error("an answer with another field was kept")
	}
}

// Half of a surrogate pair is refused with its line. A whole pair, and a half in a comment or a block, is text.
func TestHalvesOfPairsAreRefused(t *testing.T) {
	for text, want := range map[string]int{
		`{ a(write: [{path: "éééééééééé", text: "\ud800"}]) }`:            1,
		"{ b: a(x: \"𝄞𝄞\",\n write: [{path: \"\\uDC00\", text: \"\"}]) }": 2,
		`query ($v: String = "é\ud83dx") { a }`:                           1,
		"{ ...f }\n\nfragment f on Query { a(x: \"\\ude00\\ud83d\") }":    3,
		`{ a(write: [{path: "éé", text: "\uD83D\uDE00"}]) }`:              0,
		"{ a(x: \"\uFFFD\", y: \"\\\\ud800\", z: \"\\ud83d\\ude00\") }":   0,
		"{ a(x: \"\"\"\\ud800\"\"\") } # \\ud800":                         0,
		`{ a(x: "\ud800`: 0, // the parser finds the error
	} {
		err := checkTokens(text)
		if line := fmt.Sprintf("line %d,", want); (err != nil) != (want > 0) || err != nil && !strings.Contains(err.Error(), line) {
			t.Errorf("%s: got %v, want an error that names line %d (0: none)", text, err, want)
		}
	}
}
