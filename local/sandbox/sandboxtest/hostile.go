package sandboxtest

import (
	"fmt"
	"strings"
)

// Requests of a server to the helper, as they are.
const (
	Digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	Hello  = `{"protocol":1,"command":"hello"}`
	Remove = `{"protocol":1,"command":"remove","id":"a"}`
	Create = `{"protocol":1,"command":"create","id":"a","slot":3,"image":"` + Digest + `","resources":{"cpuMHz":100,"memoryMiB":64,"processes":32,"workspaceMiB":8}}`
)

// Hostile returns requests that no server makes.
func Hostile() []string {
	all := []string{
		"", "{}", "null", "[]", "true", "\x00", "{\"", Create + "{}", Remove + "x", Create[:40],
		`{"protocol":1,"command":"remove","id":"a","more":1}`,
		`{"protocol":1,"command":"remove","id":"a","slot":1}`,
		`{"protocol":1,"command":"remove","id":"a","image":"` + Digest + `"}`,
		`{"protocol":1,"command":"create","id":"a","slot":1}`,
		`{"protocol":1,"command":"hello","id":"a"}`,
		`{"protocol":1,"command":"work","id":"a"}`,
		`{"command":"hello"}`,
		strings.Repeat("[", 60000), strings.Repeat(`{"a":`, 10000),
	}
	put := func(from, to string) {
		text := strings.Replace(Create, from, to, 1)
		if text == Create {
			panic(from + " isn't there")
		}
		all = append(all, text)
	}
	for _, id := range []string{"", ".", "..", "../a", "../../etc", "a/b", "/a", "-a", "a\\u0000", "a\\n", " ", "\xff", strings.Repeat("a", 65)} {
		put(`"id":"a"`, `"id":"`+id+`"`)
	}
	put(`"id":"a"`, `"id":["a"]`)
	put(`"id":"a"`, `"id":null`)
	for _, command := range []string{"", "init", "once", "listen", "Create", "remove"} {
		put(`"command":"create"`, `"command":"`+command+`"`)
	}
	for _, image := range []string{"..", "/", "/etc", "host", Digest + "0", Digest[:70], strings.ToUpper(Digest), "sha256:" + strings.Repeat("../", 21) + "a", strings.Replace(Digest, "sha256:", "sha512:", 1)} {
		put(Digest, image)
	}
	for _, slot := range []string{"-1", "60000", "4294967296", "1e3", "1.5", `"1"`, "99999999999999999999", "null1"} {
		put(`"slot":3`, `"slot":`+slot)
	}
	for _, field := range []string{`"cpuMHz":100`, `"memoryMiB":64`, `"processes":32`, `"workspaceMiB":8`} {
		name, _, _ := strings.Cut(field, ":")
		for _, value := range []string{"-1", "0", "1048577", "9223372036854775807", "9223372036854775808", "1e400", `"8"`, "[]"} {
			put(field, name+":"+value)
		}
	}
	for _, protocol := range []string{"0", "2", "-1", `"1"`} {
		put(`"protocol":1`, `"protocol":`+protocol)
	}
	for _, runtime := range []string{"/usr/bin/runc", "../runc", "runc --root=/", " "} {
		put(`"slot":3`, `"runtime":"`+runtime+`"`)
	}
	for _, more := range []string{`"stateDir":"/"`, `"spec":{"hooks":{}}`, `"cgroup":"/"`, `"config":{"root":"/"}`} {
		put(`"slot":3`, more)
	}
	put(`"resources":{`, `"resources":{"more":1,`)
	return append(all, fmt.Sprintf(`{"protocol":1,"command":"remove","id":"%s"}`, strings.Repeat("a", 65000)))
}
