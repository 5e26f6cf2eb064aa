package pages

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

var (
	heredoc    = regexp.MustCompile(`<<-?\s*['"]?(\w+)['"]?`)
	assignment = regexp.MustCompile(`^\w+=`)
	separators = ";&|()\n"

	// prefixes are the words that may come before a command.
	prefixes = []string{"sudo", "exec", "time", "!", "if", "then", "else", "while", "until", "do", "$"}
)

// Arguments returns the arguments of each command in a shell script that runs a program. It understands
// what pages use: quotes, comments, heredocs, pipes, lists and $(…).
func Arguments(program, script string) (all [][]string) {
	for _, command := range commands(script) {
		for len(command) > 0 && (assignment.MatchString(command[0]) || slices.Contains(prefixes, command[0])) {
			command = command[1:]
		}
		if len(command) > 0 && path.Base(command[0]) == program {
			all = append(all, command[1:])
		}
	}
	return all
}

// commands splits a script into simple commands, and these into words. A redirection ends a command's words.
func commands(script string) (all [][]string) {
	var command []string
	var word strings.Builder
	inWord, redirected := false, false
	endWord := func() {
		if inWord && !redirected {
			command = append(command, word.String())
		}
		word.Reset()
		inWord = false
	}
	endCommand := func() {
		endWord()
		if len(command) > 0 {
			all = append(all, command)
		}
		command, redirected = nil, false
	}
	var ends []string // of the heredocs that begin after this line
	for i := 0; i < len(script); i++ {
		switch c := script[i]; {
		case c == '\\' && i+1 < len(script):
			i++
			if script[i] != '\n' {
				word.WriteByte(script[i])
				inWord = true
			}
		case c == '\'' || c == '"':
			quoted := script[i+1:]
			quoted = quoted[:closing(quoted, c)]
			if c == '"' && strings.Contains(quoted, "$(") {
				all = append(all, commands(quoted)...)
			}
			word.WriteString(quoted)
			inWord = true
			i += len(quoted) + 1
		case c == '#' && !inWord:
			for i+1 < len(script) && script[i+1] != '\n' {
				i++
			}
		case c == '<' && heredoc.MatchString(script[i:]) && heredoc.FindStringIndex(script[i:])[0] == 0:
			m := heredoc.FindStringSubmatch(script[i:])
			ends = append(ends, m[1])
			endWord()
			i += len(m[0]) - 1
		case c == '<' || c == '>':
			endWord()
			redirected = true
		case c == '$' && strings.HasPrefix(script[i:], "$("):
			endCommand()
			i++
		case strings.IndexByte(separators, c) >= 0:
			endCommand()
			for c == '\n' && len(ends) > 0 {
				for i+1 < len(script) {
					line, _, _ := strings.Cut(script[i+1:], "\n")
					i = min(i+1+len(line), len(script)-1)
					if strings.TrimLeft(line, "\t") == ends[0] {
						break
					}
				}
				ends = ends[1:]
			}
		case c == ' ' || c == '\t':
			endWord()
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	endCommand()
	return all
}

// closing returns where a quote ends that has begun: outside of $(…), if it is a double one.
func closing(text string, quote byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == quote && depth == 0:
			return i
		case quote == '\'':
		case c == '\\':
			i++
		case strings.HasPrefix(text[i:], "$("):
			depth++
		case c == ')' && depth > 0:
			depth--
		}
	}
	return len(text)
}
