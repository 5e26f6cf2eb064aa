package jobe

import (
	"encoding/json"
	"fmt"
	"reflect"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestRefusedSpecs(t *testing.T) {
	for _, test := range []struct{ body, why string }{
		{``, "Non-JSON post data received"},
		{`{"run_spec": `, "Non-JSON post data received"},
		{`[1]`, "Non-JSON post data received"},
		{`null`, "Non-JSON post data received"},
		{`{}`, "No run_spec attribute found in post data"},
		{`{"run_spec": "x"}`, "No run_spec attribute found in post data"},
		{`{"run_spec": {"sourcecode": "x"}}`, "run_spec is missing the required attribute 'language_id'"},
		{`{"run_spec": {"language_id": "c"}}`, "run_spec is missing the required attribute 'sourcecode'"},
		{`{"run_spec": {"language_id": "c", "sourcecode": null}}`, "run_spec is missing the required attribute 'sourcecode'"},
		{`{"run_spec": {"language_id": ["c"], "sourcecode": ""}}`, "the attribute 'language_id' of run_spec must be a string"},
		{`{"run_spec": {"sourcecode": "x", "language_id": "` + strings.Repeat("x", 1000) + `"}}`, "Language '" + strings.Repeat("x", 200) + "' is not known"},
		{spec1(`"parameters": {"cputime": 121}`), "cputime exceeds maximum allowed on this Jobe server (120 secs)"},
		{spec1(`"parameters": {"cputime": "1e3"}`), "cputime exceeds maximum allowed on this Jobe server (120 secs)"},
		{spec1(`"parameters": 7`), "the attribute 'parameters' of run_spec must be an object"},
		{spec1(`"parameters": {"runargs": "-x"}`), "the parameter 'runargs' must be a list of strings"},
		{spec1(`"parameters": {"linkargs": [["-x"]]}`), "the parameter 'linkargs' must be a list of strings"},
		{spec1(`"parameters": {"compileargs": ["'x"]}`), "the parameter 'compileargs' has a quote that isn't closed"},
		{spec1(`"file_list": "x"`), "Invalid file specifier: file_list must be a list of [id, name]"},
		{spec1(`"file_list": [["12345678"]]`), `Invalid file specifier: ["12345678"]`},
		{spec1(`"file_list": [["1234567", "x"]]`), `Invalid file specifier: ["1234567", "x"]`},
		{spec1(`"file_list": [["../../etc/passwd", "x"]]`), `Invalid file specifier: ["../../etc/passwd", "x"]`},
		{spec1(`"file_list": [["12345678", "../x"]]`), `Invalid file specifier: ["12345678", "../x"]`},
		{spec1(`"file_list": [["12345678", ".."]]`), `Invalid file specifier: ["12345678", ".."]`},
		{spec1(`"file_list": [["12345678", "/etc/passwd"]]`), `Invalid file specifier: ["12345678", "/etc/passwd"]`},
		{spec1(`"file_list": [["12345678", "x\u0000y"]]`), `Invalid file specifier: ["12345678", "x\u0000y"]`},
		{spec1(`"file_list": [["12345678", ""]]`), `Invalid file specifier: ["12345678", ""]`},
		{spec1(`"file_list": [[12345678, "x"]]`), `Invalid file specifier: [12345678, "x"]`},
		{spec1(`"file_list": [["12345678", "x", true, 1]]`), `Invalid file specifier: ["12345678", "x", true, 1]`},
		{spec1(`"parameters": {"runargs": ["` + strings.Repeat("a ", maxArguments) + `", "a"]}`), "the parameter 'runargs' has more than 4096 arguments"},
		{spec1(`"file_list": [` + strings.Repeat(`["12345678", "x"],`, maxFiles) + `["12345678", "x"]]`), "Invalid file specifier: at most 1000 files"},
	} {
		if _, refused := parseSpec([]byte(test.body)); refused == nil || refused.status != 400 || refused.why != test.why {
			t.Errorf("%.120s: %v, want 400 %q", test.body, refused, test.why)
		}
	}
}

// Useless parts of a body are never decoded.
func TestLargeListsTakeLittleMemory(t *testing.T) {
	zeros := "[" + strings.Repeat("0,", 1<<19) + "0]"
	var names strings.Builder
	for i := range 1 << 16 {
		fmt.Fprintf(&names, `"%d":0,`, i)
	}
	for name, body := range map[string]string{
		"files": spec1(`"file_list": ` + zeros), "a file": spec1(`"file_list": [` + zeros + `]`), "the same file": spec1(`"file_list": [` + strings.Repeat(`["12345678","x"],`, 1<<16) + `0]`),
		"arguments": spec1(`"parameters": {"runargs": ["` + strings.Repeat("a ", 1<<19) + `"]}`), "no arguments": spec1(`"parameters": {"runargs": ` + zeros + `}`),
		"a language": `{"run_spec": {"sourcecode": "x", "language_id": "` + strings.Repeat("\xff", 1<<20) + `"}}`,
		"attributes": spec1(names.String() + `"x":0`), "parameters": spec1(`"parameters": {` + names.String() + `"cputime": 1000}`),
	} {
		before, after := new(goruntime.MemStats), new(goruntime.MemStats)
		goruntime.ReadMemStats(before)
		_, refused := parseSpec([]byte(body))
		goruntime.ReadMemStats(after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 16*uint64(len(body)) {
			t.Errorf("%s: %d bytes take %d, %v", name, len(body), took, refused)
		}
	}
}

// spec1 returns a body with further fields in its run_spec.
func spec1(more string) string {
	return `{"run_spec": {"language_id": "c", "sourcecode": "x", ` + more + `}}`
}

func TestIllegalSourceNames(t *testing.T) {
	for _, name := range []string{"a/b.c", "../b.c", "..", ".b.c", "-b.c", `a\b.c`, "a:b", "a\nb", "a\x00b", "a b;c", "$(x)", "a`b", "a\u00a0b", strings.Repeat("x", 256)} {
		text, _ := json.Marshal(name)
		if _, refused := parseSpec([]byte(spec1(`"sourcefilename": ` + string(text)))); refused == nil || refused.why != "The sourcefilename for the run_spec is illegal" {
			t.Errorf("%q: %v", name, refused)
		}
	}
	for _, name := range []string{"", "prog.c", "__tester__.python3", "my prog.c", "é.c", "a..b"} {
		text, _ := json.Marshal(name)
		if _, refused := parseSpec([]byte(spec1(`"sourcefilename": ` + string(text)))); refused != nil {
			t.Errorf("%q: %v", name, refused)
		}
	}
}

func TestSpec(t *testing.T) {
	body := `{"run_spec": {"language_id": "python3", "sourcecode": "print(1)", "sourcefilename": "a.py", "input": 7, "debug": 1,
		"file_list": [["12345678", "one"], ["abcdefgh", "two", true], ["ABCDEFGH", "one"]], "unknown": {},
		"parameters": {"cputime": "2.5", "memorylimit": true, "runargs": ["a 'b c'", 3, null, true], "numprocs": "many", "interpreterargs": []}}}`
	s, refused := parseSpec([]byte(body))
	if refused != nil {
		t.Fatal(refused)
	}
	want := spec{
		language: "python3", source: "print(1)", fileName: "a.py", input: "7", files: []namedFile{{"ABCDEFGH", "one"}, {"abcdefgh", "two"}},
		parameters: parameters{seconds: new(2.5), run: []string{"a", "b c", "3", "1"}, interpreter: []string{}},
	}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("got  %+v\nwant %+v", s, want)
	}
	for _, empty := range []string{`"parameters": [], "file_list": {}`, `"parameters": null, "file_list": null`, `"parameters": {}, "file_list": []`} { // as PHP writes them
		if s, refused := parseSpec([]byte(spec1(empty))); refused != nil || len(s.files) > 0 || !reflect.DeepEqual(s.parameters, parameters{}) {
			t.Errorf("%s: %+v, %v", empty, s, refused)
		}
	}
}

func TestWords(t *testing.T) {
	for text, want := range map[string][]string{
		"":                        nil,
		" \t\n":                   nil,
		"-x c":                    {"-x", "c"},
		`-c "print(\"Blah\")"`:    {"-c", `print("Blah")`},
		`'a b'c "" ''`:            {"a bc", "", ""},
		`"a\b\\c\$d" 'e\f' g\ h`:  {`a\b\c$d`, `e\f`, "g h"},
		`$HOME *.c ; rm & $(id)`:  {"$HOME", "*.c", ";", "rm", "&", "$(id)"},
		"`id` > /tmp/x | cat\r\n": {"`id`", ">", "/tmp/x", "|", "cat"},
	} {
		if got, err := words(text, 6); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"a b c d e f g", "a b c d e f g h", `'a`, `"a`, `a\`, `"a\"`} {
		if got, err := words(text, 6); err == nil {
			t.Errorf("%q: %q without an error", text, got)
		}
	}
}

func TestBounds(t *testing.T) {
	c, java := dialects["c"], dialects["java"]
	for _, test := range []struct {
		name, parameters string
		pace             float64
		dialect          dialect
		run, build       string
	}{
		{"defaults", `{}`, 1, c, "5 s 65 s 2000000 B 20000000 B 30", "60 s 340 s 2000000 B 20000000 B 30"},
		{"least of a build", `{"cputime": 1, "disklimit": 1, "numprocs": 1}`, 1, c, "1 s 45 s 2000000 B 1000000 B 1", "60 s 340 s 2000000 B 20000000 B 5"},
		{"fractions", `{"cputime": 0.1, "streamsize": 0.0001, "disklimit": 0.5}`, 1, c, "1 s 45 s 1024 B 500000 B 30", "60 s 340 s 1024 B 20000000 B 30"},
		{"none", `{"cputime": 0, "streamsize": 0, "disklimit": -1, "numprocs": 0}`, 1, c, "120 s 640 s 16777216 B - -", "120 s 640 s 16777216 B - -"},
		{"much", `{"cputime": 120.5, "streamsize": 1e300, "disklimit": 1e300, "numprocs": 1e300}`, 1, c, "120 s 640 s 16777216 B 1099511627776 B 65536", "120 s 640 s 16777216 B 1099511627776 B 65536"},
		{"a hundredth of a CPU", `{"cputime": 120}`, 300, c, "120 s 86400 s 2000000 B 20000000 B 30", "120 s 86400 s 2000000 B 20000000 B 30"},
		{"Java", `{"numprocs": 20}`, 1, java, "5 s 65 s 2000000 B 20000000 B 256", "60 s 340 s 2000000 B 20000000 B 256"},
	} {
		p, refused := parseParameters([]byte(test.parameters))
		if refused != nil {
			t.Fatal(refused)
		}
		most := ceiling{output: 1 << 40, pace: test.pace}
		run, build := p.bounds(test.dialect, most), p.buildBounds(test.dialect, most)
		for _, side := range []struct {
			of        string
			got, want string
		}{
			{"run", fmt.Sprintf("%d s %d s %s B %s %s", *run.CPUSeconds, *run.TimeLimit, said(run.OutputLimit), size(run.FileSize), said(run.Processes)), test.run},
			{"build", fmt.Sprintf("%d s %d s %s B %s %s", *build.CPUSeconds, *build.TimeLimit, said(build.OutputLimit), size(build.FileSize), said(build.Processes)), test.build},
		} {
			if side.got != side.want {
				t.Errorf("%s, %s: %s, want %s", test.name, side.of, side.got, side.want)
			}
		}
	}
}

func size(bytes *int64) string {
	if bytes == nil {
		return "-"
	}
	return said(bytes) + " B"
}

func said[T any](value *T) string {
	if value == nil {
		return "-"
	}
	return fmt.Sprint(*value)
}

// FuzzSpec checks that every body is refused with a client error or can be run. Its file names stay
// in the program's directory, and its text is valid JSON.
func FuzzSpec(f *testing.F) {
	f.Add([]byte(spec1(`"file_list": [["12345678", "x"]], "sourcefilename": "a.c", "parameters": {"cputime": 1, "runargs": ["a 'b'"]}`)))
	f.Add([]byte(spec1(`"parameters": {"numprocs": 1e309, "streamsize": -0, "memorylimit": "NaN"}`)))
	f.Add([]byte(`{"run_spec": {"language_id": true, "sourcecode": 1.5e3, "input": false}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		s, refused := parseSpec(body)
		if refused != nil {
			if refused.status != 400 || refused.why == "" {
				t.Fatalf("%d %q", refused.status, refused.why)
			}
			return
		}
		for _, file := range append(s.files, namedFile{"12345678", "x" + s.fileName}) {
			if strings.ContainsAny(file.name, "/\x00") || file.name == ".." || len(file.id) < 8 {
				t.Fatalf("%q", file)
			}
		}
		if !utf8.ValidString(s.source) || !utf8.ValidString(s.input) {
			t.Fatalf("%q, %q", s.source, s.input)
		}
		for _, d := range dialects {
			run := s.parameters.bounds(d, ceiling{output: 1 << 20, pace: 1})
			if *run.CPUSeconds < 1 || *run.CPUSeconds > maxSeconds || *run.OutputLimit < 1024 || *run.OutputLimit > 1<<20 || run.FileSize != nil && *run.FileSize < 1 || run.Processes != nil && *run.Processes < 1 {
				t.Fatalf("%+v", run)
			}
		}
	})
}
