package api

import (
	"fmt"
	"io"
	"strings"
)

// formAttacks are assaults by multipart requests. A body's limit doesn't bound their parts, which
// may be files of any size.
func formAttacks() []assault {
	const (
		uploads = `{"query": "mutation($file: Upload!) { uploadFile(runnerId: \"none\", path: \"f\", file: $file) { file { size } } }", "variables": {"file": null}}`
		paths   = `{"0": ["variables.file"]}`
		big     = 31 << 20 // within the limit of a body
		more    = 40 << 20
	)
	operations, file := part("operations", uploads), part("0", "content")
	all := []assault{
		{name: "a part operations of 40 MB", body: form(part("operations", strings.Repeat(" ", more)), part("map", paths), file), code: "LIMIT_EXCEEDED"},
		{name: "a part operations of 31 MB of brackets", body: form(part("operations", "{"+strings.Repeat("[", big)), part("map", paths), file), code: "LIMIT_EXCEEDED"},
		{name: "a part map of 40 MB", body: form(operations, part("map", strings.Repeat(" ", more)), file), code: "LIMIT_EXCEEDED"},
		{name: "a map of a million files", body: form(operations, part("map", "{"+numbered(1_000_000, `"%d": [],`)+`"0": []}`), file), code: "LIMIT_EXCEEDED"},
		{name: "a map with a path of 31 MB", body: form(operations, part("map", `{"0": ["`+strings.Repeat("x", big)+`"]}`), file), code: "LIMIT_EXCEEDED"},
		{name: "a map with a path of 31 million dots", body: form(operations, part("map", `{"0": ["variables`+strings.Repeat(".", big)+`"]}`), file), code: "LIMIT_EXCEEDED"},
		{name: "a part with 50 MB of headers", body: form("--cut\r\n", numbered(1<<20, "X-Header-%07d: "+strings.Repeat("x", 29)+"\r\n")), code: "INVALID_INPUT"},
		{name: "a part with a header of 50 MB", body: form("--cut\r\nX-Header: " + strings.Repeat("x", 50<<20) + "\r\n"), code: "INVALID_INPUT"},
		{name: "a file with 50 MB of headers", body: form(operations, part("map", paths), "--cut\r\n", numbered(1<<20, "X-Header-%07d: "+strings.Repeat("x", 29)+"\r\n")), code: "INVALID_INPUT"},
		{name: "100,000 unknown files", body: form(operations, part("map", paths), strings.Repeat(part("unknown", "x"), 100_000)), code: "INVALID_INPUT"},
		{name: "50 MB before the first part", body: form(strings.Repeat("x", 50<<20)+"\r\n", operations, part("map", paths)), code: "INVALID_INPUT"},
	}
	for i := range all {
		all[i].form = true
	}
	return all
}

func part(name, content string) string {
	return fmt.Sprintf("--cut\r\nContent-Disposition: form-data; name=%q\r\n\r\n%s\r\n", name, content)
}

// form returns a body of these parts, which is assembled while it is sent.
func form(parts ...string) func() io.Reader {
	return func() io.Reader {
		var readers []io.Reader
		for _, text := range append(parts[:len(parts):len(parts)], "--cut--\r\n") {
			readers = append(readers, strings.NewReader(text))
		}
		return io.MultiReader(readers...)
	}
}
