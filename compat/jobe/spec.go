package jobe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/runtime"
)

// A refusal is an answer other than a result: a status and the reason.
type refusal struct {
	status int
	why    string
}

func (r *refusal) Error() string { return r.why }

// refuse returns a refusal with a status and a formatted reason.
func refuse(status int, format string, args ...any) *refusal {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// bad returns a refusal with status 400.
func bad(format string, args ...any) *refusal { return refuse(400, format, args...) }

// A spec is what a client requests to run.
type spec struct {
	language   string
	source     string
	fileName   string // empty for the language's own
	input      string
	files      []namedFile
	parameters parameters
}

// size returns the bytes of the program, its input and its arguments.
func (s spec) size() int {
	p := s.parameters
	bytes := len(s.source) + len(s.input) + len(p.mainClass)
	for _, argument := range slices.Concat(p.compile, p.link, p.interpreter, p.run) {
		bytes += len(argument)
	}
	return bytes
}

// A namedFile is a file of the cache, and its name in the program's directory.
type namedFile struct {
	id, name string
}

func parseSpec(body []byte) (s spec, refused *refusal) {
	var outer *struct {
		Run json.RawMessage `json:"run_spec"`
	}
	// The decoder would replace what isn't text. PHP refuses it, too.
	if _, err := clients.Values(body); runtime.CodeOf(err) == runtime.CodeInvalidInput {
		return s, bad("Non-JSON post data received: %s", err)
	}
	if json.Unmarshal(body, &outer) != nil || outer == nil {
		return s, bad("Non-JSON post data received")
	}
	// Values stay raw: scalar accepts numbers and booleans for strings, as PHP does.
	var run *struct {
		Source     json.RawMessage `json:"sourcecode"`
		Language   json.RawMessage `json:"language_id"`
		Input      json.RawMessage `json:"input"`
		FileName   json.RawMessage `json:"sourcefilename"`
		Files      json.RawMessage `json:"file_list"`
		Parameters json.RawMessage `json:"parameters"`
	}
	if json.Unmarshal(outer.Run, &run) != nil || run == nil {
		return s, bad("No run_spec attribute found in post data")
	}
	for _, text := range []struct {
		name   string
		raw    json.RawMessage
		into   *string
		needed bool
	}{
		{"sourcecode", run.Source, &s.source, true}, {"language_id", run.Language, &s.language, true},
		{"input", run.Input, &s.input, false}, {"sourcefilename", run.FileName, &s.fileName, false},
	} {
		value, given, ok := scalar(text.raw)
		switch {
		case !ok:
			return s, bad("the attribute '%s' of run_spec must be a string", text.name)
		case !given && text.needed:
			return s, bad("run_spec is missing the required attribute '%s'", text.name)
		}
		*text.into = value
	}
	if len(s.language) > maxName { // each lookup of a language copies the name
		return s, unknownLanguage(s.language)
	}
	if !validSourceName(s.fileName) {
		return s, bad("The sourcefilename for the run_spec is illegal")
	}
	if s.files, refused = parseFiles(run.Files); refused != nil {
		return s, refused
	}
	s.parameters, refused = parseParameters(run.Parameters)
	return s, refused
}

// scalar converts a JSON value to a string, as PHP does. A list or an object isn't ok.
func scalar(raw json.RawMessage) (text string, given, ok bool) {
	switch word := string(bytes.TrimSpace(raw)); {
	case word == "" || word == "null":
		return "", false, true
	case word == "true":
		return "1", true, true
	case word == "false":
		return "", true, true
	case word[0] == '"':
		return text, true, json.Unmarshal(raw, &text) == nil
	case word[0] == '[' || word[0] == '{':
		return "", true, false
	default:
		return word, true, true // a number
	}
}

// maxName bounds a file's name in bytes, as the kernel does.
const maxName = 255

// illegal matches characters that a source's name must not have: those with a meaning in file
// systems, shells and URIs.
var illegal = regexp.MustCompile("[<>:\"/\\\\|?*\\x00-\\x1F\\x7F\u00a0\u00ad#\\[\\]@!$&'()+,;={}^~`]")

// validSourceName reports whether a source may have this name. "" is valid: the language has a
// name.
func validSourceName(name string) bool {
	return len(name) <= maxName && !illegal.MatchString(name) && !strings.HasPrefix(name, ".") && !strings.HasPrefix(name, "-")
}

var (
	fileIDs   = regexp.MustCompile(`^[A-Za-z0-9]{1,128}$`)
	listedIDs = regexp.MustCompile(`^[A-Za-z0-9]{8,128}$`)
	fileNames = regexp.MustCompile(`^[-_.]*[A-Za-z0-9][A-Za-z0-9._-]*$`)
)

// maxFiles bounds the files of a run.
const maxFiles = 1000

// parseFiles returns the files of a run. If two have the same name, the later one wins.
func parseFiles(raw json.RawMessage) ([]namedFile, *refusal) {
	if text := bytes.TrimSpace(raw); len(text) == 0 || string(text) == "null" || string(text) == "{}" {
		return nil, nil // PHP encodes an empty map as a list or an object
	}
	files, at, listed := []namedFile(nil), map[string]int{}, 0
	refused, ok := elements(raw, func(element json.RawMessage) *refusal {
		if listed++; listed > maxFiles {
			return bad("Invalid file specifier: at most %d files", maxFiles)
		}
		var (
			pair     [4]json.RawMessage // Jobe accepts and ignores a third element
			id, name string
		)
		if json.Unmarshal(element, &pair) != nil || pair[3] != nil || json.Unmarshal(pair[0], &id) != nil || json.Unmarshal(pair[1], &name) != nil ||
			!listedIDs.MatchString(id) || !fileNames.MatchString(name) || len(name) > maxName {
			return invalidFile(element)
		}
		if i, twice := at[name]; twice {
			files[i].id = id
			return nil
		}
		at[name] = len(files)
		files = append(files, namedFile{id, name})
		return nil
	})
	if !ok {
		return nil, bad("Invalid file specifier: file_list must be a list of [id, name]")
	}
	return files, refused
}

// elements calls do for each element of a list until it refuses one. Only one element is in memory
// at a time. Ok is false if raw isn't a list.
func elements(raw json.RawMessage, do func(element json.RawMessage) *refusal) (refused *refusal, ok bool) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	if begin, err := decoder.Token(); err != nil || begin != json.Delim('[') {
		return nil, false
	}
	for element := (json.RawMessage)(nil); decoder.More() && refused == nil; refused = do(element) {
		if decoder.Decode(&element) != nil {
			return nil, false
		}
	}
	return refused, true
}

// invalidFile returns the refusal of an element of file_list.
func invalidFile(element json.RawMessage) *refusal {
	return bad("Invalid file specifier: %s", repeated(element))
}

// unknownLanguage returns the refusal of a language that isn't served.
func unknownLanguage(name string) *refusal {
	return bad("Language '%s' is not known", repeated(name))
}

// repeated truncates a client's text for use in an answer.
func repeated[T string | json.RawMessage](text T) T {
	const most = 200
	return text[:min(len(text), most)]
}
