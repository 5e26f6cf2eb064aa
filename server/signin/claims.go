package signin

import (
	"slices"
	"strings"
	"unicode"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
)

// values returns a claim's text, or the texts of its list. Dots in the path separate the names of
// nested objects. A claim whose own name contains the dots takes precedence.
func values(claims map[string]any, path string) []string {
	if claim, has := claims[path]; has {
		return texts(claim)
	}
	for end := len(path); ; {
		if end = strings.LastIndexByte(path[:end], '.'); end < 0 {
			return nil
		}
		if inner, isObject := claims[path[:end]].(map[string]any); isObject {
			return values(inner, path[end+1:])
		}
	}
}

// texts returns the texts of a claim that is a text or a list. It ignores other values.
func texts(claim any) (all []string) {
	switch claim := claim.(type) {
	case string:
		return []string{claim}
	case []any:
		for _, item := range claim {
			if text, isText := item.(string); isText {
				all = append(all, text)
			}
		}
	}
	return all
}

// role returns the role of the first rule that matches one of the claim's values; "" if none does.
func role(rules []Rule, values []string) access.Role {
	for _, rule := range rules {
		if slices.Contains(values, rule.Value) {
			return rule.Role
		}
	}
	return ""
}

// tenant returns the tenant of a claim. named is false unless the claim has exactly one value and
// that is a valid name.
func tenant(values []string) (id runtime.TenantID, named bool) {
	if len(values) != 1 {
		return "", false
	}
	id, err := runtime.ParseTenant("tenant", values[0])
	return id, err == nil
}

// maxName is the maximum length of a name, in characters.
const maxName = 100

// name returns a person's name without control characters and other invisible ones, so that it
// can't control a terminal or break a log line.
func name(claims map[string]any) string {
	for _, claim := range []string{"name", "preferred_username", "email", "sub"} {
		text, _ := claims[claim].(string)
		text = strings.Map(func(r rune) rune {
			if r != ' ' && !unicode.IsGraphic(r) || r == unicode.ReplacementChar {
				return -1
			}
			return r
		}, text)
		if text = strings.TrimSpace(text); text != "" {
			return string([]rune(text)[:min(maxName, len([]rune(text)))])
		}
	}
	return ""
}
