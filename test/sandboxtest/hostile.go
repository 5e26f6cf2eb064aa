package sandboxtest

import (
	"fmt"
	"strings"
)

// Valid requests of a server to the helper.
const (
	Digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	Hello  = `{"protocol":2,"command":"hello"}`
	Remove = `{"protocol":2,"command":"remove","id":"a"}`
	Probe  = `{"protocol":2,"command":"probe","runtime":"gvisor"}`
	Lease  = `{"protocol":2,"command":"lease","id":"a","lease":{"addresses":["20.0.0.1","2a00::1"]}}`
	Verify = `{"protocol":2,"command":"verify","id":"a","slot":3,"network":{"egress":true,"narrow":true,"allow":["20.0.0.0/8"],"ports":[80],"bandwidth":5}}`
	Create = `{"protocol":2,"command":"create","id":"a","slot":3,"image":"` + Digest + `","resources":{"cpuMHz":100,"memoryMiB":64,"processes":32,"workspaceMiB":8}}`
)

// Hostile returns requests that no server sends.
func Hostile() []string {
	all := []string{
		"", "{}", "null", "[]", "true", "\x00", "{\"", Create + "{}", Remove + "x", Create[:40],
		`{"protocol":2,"command":"remove","id":"a","more":1}`,
		`{"protocol":2,"command":"remove","id":"a","slot":1}`,
		`{"protocol":2,"command":"remove","id":"a","image":"` + Digest + `"}`,
		`{"protocol":2,"command":"create","id":"a","slot":1}`,
		`{"protocol":2,"command":"hello","id":"a"}`,
		`{"protocol":2,"command":"work","id":"a"}`,
		`{"protocol":2,"command":"probe"}`,
		`{"protocol":2,"command":"probe","runtime":"/usr/bin/runc"}`,
		`{"protocol":2,"command":"probe","runtime":"gvisor","id":"a"}`,
		`{"protocol":2,"command":"hello","runtime":"gvisor"}`,
		`{"protocol":2,"command":"remove","id":"a","runtime":"gvisor"}`,
		`{"command":"hello"}`,
		strings.Repeat("[", 60000), strings.Repeat(`{"a":`, 10000),
	}
	put := func(from, to string) {
		text := strings.Replace(Create, from, to, 1)
		if text == Create {
			panic("Create has no " + from)
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
	for _, protocol := range []string{"0", "1", "3", "-1", `"2"`} {
		put(`"protocol":2`, `"protocol":`+protocol)
	}
	for _, runtime := range []string{"/usr/bin/runc", "../runc", "runc --root=/", " "} {
		put(`"slot":3`, `"runtime":"`+runtime+`"`)
	}
	for _, more := range []string{`"stateDir":"/"`, `"spec":{"hooks":{}}`, `"cgroup":"/"`, `"config":{"root":"/"}`} {
		put(`"slot":3`, more)
	}
	put(`"resources":{`, `"resources":{"more":1,`)
	for _, wish := range []string{
		`{"egress":true,"allow":["20.0.0.0/8"]}`, `{"narrow":true}`, `{"egress":true,"narrow":true,"allow":["20.0.0.1/8"]}`, `{"egress":true,"narrow":true,"allow":["x"]}`,
		`{"ports":[0]}`, `{"ports":[80,80]}`, `{"ports":[65536]}`, `{"ports":[-1]}`, `{"bandwidth":-1}`, `{"bandwidth":100001}`, `{"link":"eth0"}`,
		`{"permit":["10.0.0.0/8"]}`, `{"pool":{}}`, `7`, `{"egress":true,"narrow":true,"allow":["20.0.0.0/8"` + strings.Repeat(`,"20.0.0.0/8"`, 64) + `]}`,
	} {
		put(`"slot":3`, `"slot":3,"network":`+wish)
	}
	put(`"slot":3`, `"lease":{"addresses":["20.0.0.1"]}`)
	put(`"command":"create"`, `"command":"lease","lease":{"addresses":["20.0.0.1"]}`)
	put(`"command":"create"`, `"command":"verify","network":{}`)
	for _, more := range []string{
		``, `,"lease":{}`, `,"lease":{"addresses":[]}`, `,"lease":{"addresses":["::ffff:1.2.3.4"]}`, `,"lease":{"addresses":["fe80::1%eth0"]}`, `,"lease":{"addresses":["20.0.0.1"]},"slot":1`,
	} {
		all = append(all, `{"protocol":2,"command":"lease","id":"a"`+more+`}`)
	}
	for _, more := range []string{``, `,"slot":1`, `,"network":{"ports":[0]}`, `,"network":{},"slot":-1`, `,"network":{},"image":"` + Digest + `"`} {
		all = append(all, `{"protocol":2,"command":"verify","id":"a"`+more+`}`)
	}
	return append(all, fmt.Sprintf(`{"protocol":2,"command":"remove","id":"%s"}`, strings.Repeat("a", 65000)))
}
