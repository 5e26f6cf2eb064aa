package language

import (
	"bytes"
	"cmp"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// javaProgram returns the program of a Java source that its caller named file. javac wants a public class in
// a file of its name, so File may have another name. Class is the class to run, with its package, and
// Directory the root of the packages.
func javaProgram(file string, source []byte) Program {
	found := scanJava(source)
	stem := func() string { return strings.TrimSuffix(path.Base(file), path.Ext(file)) }
	if !slices.Contains(found.public, stem()) && len(found.public) > 0 {
		file = path.Join(path.Dir(file), found.public[0]+path.Ext(file))
	}
	p := Program{File: file, Class: found.class(stem()), Directory: path.Dir(file)}
	if found.pkg == "" {
		return p
	}
	p.Class = found.pkg + "." + p.Class
	folder := strings.ReplaceAll(found.pkg, ".", "/")
	if p.Directory == folder {
		p.Directory = "."
	} else {
		p.Directory = cmp.Or(strings.TrimSuffix(p.Directory, "/"+folder), "/")
	}
	return p
}

type javaSource struct {
	pkg    string
	types  []string // top-level ones
	public []string // those of types that are public
	mains  []javaMain
}

// A javaMain is a method main. class is the binary name of its class, such as Outer$Inner; "" means the class
// that javac names after the file.
type javaMain struct {
	class    string
	isPublic bool // class is, and at top level
	plain    bool // public static void main(String[]), which every version of Java runs
}

// class returns the class to run, without its package. stem is the name of the file.
func (s javaSource) class(stem string) string {
	ranks := []func(m javaMain) bool{
		func(m javaMain) bool { return m.class == stem },
		func(m javaMain) bool { return m.isPublic },
		func(m javaMain) bool { return !strings.Contains(m.class, "$") },
		func(javaMain) bool { return true },
	}
	for _, plain := range []bool{true, false} {
		for _, is := range ranks {
			if i := slices.IndexFunc(s.mains, func(m javaMain) bool { return m.plain == plain && is(m) }); i >= 0 {
				return cmp.Or(s.mains[i].class, stem)
			}
		}
	}
	// It may inherit main.
	if len(s.types) == 0 || slices.Contains(s.types, stem) {
		return stem
	}
	return s.types[0]
}

// maxJavaName bounds the bytes of a class's name, whose file has an extension, and of a package's.
const maxJavaName = 250

// scanJava finds the package, the types and the main methods. It looks only at tokens, so it also
// finds them in a source that javac rejects.
func scanJava(source []byte) (found javaSource) {
	type body struct {
		name        string // "" means a local class, or a name too long for a file
		depth       int
		isPublic    bool
		isInterface bool
	}
	type modifiers struct{ public, static bool } // of the next declaration
	var (
		l        = javaLexer{rest: source}
		open     []body
		pending  *body // declared, and its body hasn't begun
		depth    int   // of braces
		modified modifiers
		before   string
	)
	for token := l.next(); token != ""; before, token = token, l.next() {
		at := body{} // the innermost type
		if len(open) > 0 {
			at = open[len(open)-1]
		}
		switch {
		case token == "@" && l.peek() != "interface": // an annotation
			for l.next(); l.peek() == "."; l.next() {
				l.next()
			}
			if l.peek() == "(" {
				l.next()
				l.group()
			}
		case token == "(":
			l.group()
		case token == "{":
			depth++
			if pending != nil {
				pending.depth = depth
				open, pending = append(open, *pending), nil
			}
			modified = modifiers{}
		case token == "}":
			if at.depth == depth {
				open = open[:max(0, len(open)-1)]
			}
			depth, modified = max(0, depth-1), modifiers{}
		case token == ";":
			modified = modifiers{}
		case depth != at.depth: // in a method
			if isJavaType(token, before, &l) {
				pending = &body{}
			}
		case token == "package" && depth == 0 && found.pkg == "":
			for part := l.next(); part != ";" && part != ""; part = l.next() {
				if len(found.pkg)+len(part) <= maxJavaName {
					found.pkg += part
				}
			}
		case isJavaType(token, before, &l):
			name := l.next()
			switch {
			case len(at.name)+len("$")+len(name) > maxJavaName:
				name = ""
			case depth == 0:
				found.types = append(found.types, name)
				if modified.public {
					found.public = append(found.public, name)
				}
			case at.name == "":
				name = ""
			default:
				name = at.name + "$" + name
			}
			if token == "record" {
				if l.until("(") {
					l.group()
				}
			}
			pending = &body{name: name, isPublic: depth == 0 && modified.public, isInterface: token == "interface"}
		case token == "main" && before == "void" && l.peek() == "(" && (at.name != "" || depth == 0):
			l.next()
			array := l.group()
			found.mains = append(found.mains, javaMain{at.name, at.isPublic, modified.static && (modified.public || at.isInterface) && array})
		default:
			modified.public = modified.public || token == "public"
			modified.static = modified.static || token == "static"
		}
	}
	return found
}

// isJavaType reports whether a token begins the declaration of a type, whose name comes next.
func isJavaType(token, before string, l *javaLexer) bool {
	switch token {
	case "class", "interface", "enum":
		return before != "." && isJavaName(l.peek())
	case "record": // also a name
		ahead := *l
		return before != "." && isJavaName(ahead.next()) && (ahead.peek() == "(" || ahead.peek() == "<")
	}
	return false
}

func isJavaName(token string) bool {
	r, _ := utf8.DecodeRuneInString(token)
	return isJavaLetter(r)
}

func isJavaLetter(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' || r == '$'
}

// A javaLexer splits a source into names and single characters. It skips white space, comments and
// literals of strings and characters.
type javaLexer struct{ rest []byte }

// next returns the next token; "" means the end.
func (l *javaLexer) next() string {
	for {
		l.rest = bytes.TrimLeft(l.rest, " \t\r\n\f\ufeff") // with a byte order mark
		switch {
		case bytes.HasPrefix(l.rest, []byte("//")):
			l.skip(2, "\n")
		case bytes.HasPrefix(l.rest, []byte("/*")):
			l.skip(2, "*/")
		case bytes.HasPrefix(l.rest, []byte(`"""`)):
			l.skip(3, `"""`)
		case bytes.HasPrefix(l.rest, []byte(`"`)):
			l.skip(1, `"`)
		case bytes.HasPrefix(l.rest, []byte(`'`)):
			l.skip(1, `'`)
		default:
			end := bytes.IndexFunc(l.rest, func(r rune) bool { return !isJavaLetter(r) })
			if end < 0 {
				end = len(l.rest)
			} else if end == 0 {
				_, end = utf8.DecodeRune(l.rest)
			}
			token := string(l.rest[:end])
			l.rest = l.rest[end:]
			return token
		}
	}
}

// skip skips the beginning of a comment or literal, and the rest to its end. A backslash hides the byte
// after it in a literal, and a literal of one line ends with the line.
func (l *javaLexer) skip(begin int, end string) {
	literal := end[0] == '"' || end[0] == '\''
	for l.rest = l.rest[begin:]; len(l.rest) > 0; l.rest = l.rest[1:] {
		switch {
		case bytes.HasPrefix(l.rest, []byte(end)):
			l.rest = l.rest[len(end):]
			return
		case literal && len(end) == 1 && l.rest[0] == '\n':
			return
		case literal && l.rest[0] == '\\' && len(l.rest) > 1:
			l.rest = l.rest[1:]
		}
	}
}

func (l *javaLexer) peek() string {
	ahead := *l
	return ahead.next()
}

// until skips the tokens before one in the same declaration, and that one. It reports whether there is one.
func (l *javaLexer) until(want string) bool {
	for {
		switch l.peek() {
		case want:
			l.next()
			return true
		case "", ";", "{", "}":
			return false
		}
		l.next()
	}
}

// group skips the tokens up to the parenthesis that closes the last one. It reports whether an array of
// strings is among them.
func (l *javaLexer) group() bool {
	isString, isArray := false, false
	for open := 1; ; {
		token := l.next()
		switch token {
		case "(":
			open++
		case ")":
			open--
		case "String":
			isString = true
		case "[", ".":
			isArray = true
		}
		if open == 0 || token == "" {
			return isString && isArray
		}
	}
}
