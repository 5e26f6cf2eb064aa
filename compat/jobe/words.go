package jobe

import (
	"errors"
	"fmt"
	"strings"
)

var (
	errOpenQuote = errors.New("has a quote that isn't closed")
	errManyWords = fmt.Errorf("has more than %d arguments", maxArguments)
)

// words splits a text into at most that many arguments, as a shell does with blanks, quotes and
// backslashes. All other characters, such as "$", "*" and ";", have no special meaning.
func words(text string, most int) ([]string, error) {
	var (
		all    []string
		word   strings.Builder
		within bool // in an argument
		quote  rune // the open one, or 0
		escape bool // after a backslash
	)
	for _, c := range text {
		switch {
		// As in a shell: between double quotes, a backslash escapes only these characters.
		case escape:
			if quote == '"' && !strings.ContainsRune("\"\\$`\n", c) {
				word.WriteByte('\\')
			}
			word.WriteRune(c)
			escape = false
		case c == '\\' && quote != '\'':
			escape, within = true, true
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(c)
		case c == '\'' || c == '"':
			quote, within = c, true
		case strings.ContainsRune(" \t\r\n", c):
			if within {
				if len(all) == most {
					return nil, errManyWords
				}
				all = append(all, word.String())
				word.Reset()
			}
			within = false
		default:
			word.WriteRune(c)
			within = true
		}
	}
	if quote != 0 || escape {
		return nil, errOpenQuote
	}
	if within {
		all = append(all, word.String())
	}
	if len(all) > most {
		return nil, errManyWords
	}
	return all, nil
}
