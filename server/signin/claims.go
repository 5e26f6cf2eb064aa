package signin

import (
	"slices"
	"strings"
	"unicode"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
)

// values returns the text of a claim, or the texts of its list. Dots in the path lead into objects; a
// claim whose own name has the dots takes precedence.
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

// role returns the first rule's role that a claim's values match; "" if none does.
func role(rules []Rule, values []string) access.Role {
	for _, rule := range rules {
		if slices.Contains(values, rule.Value) {
			return rule.Role
		}
	}
	return ""
}

// tenant returns the tenant that a claim's values name: exactly one, with a valid name.
func tenant(values []string) (id runtime.TenantID, named bool) {
	if len(values) != 1 {
		return "", false
	}
	id, err := runtime.ParseTenant("tenant", values[0])
	return id, err == nil
}

// maxName is how many characters of a name are kept.
const maxName = 100

// name returns a person's name, without characters that a terminal or a reader of log lines wouldn't take
// for text.
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
