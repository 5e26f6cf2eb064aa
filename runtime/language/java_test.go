package language_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/runtime/language"
)

func TestJavaProgram(t *testing.T) {
	const main = "{ public static void main(String[] args) { System.out.println(1); } }"
	for _, test := range []struct{ name, file, source, wantFile, class, directory string }{
		{"no name", "", "class A {}", "Main.java", "A", "."},
		{"no name, public", "", "public class Hello " + main, "Hello.java", "Hello", "."},
		{"empty", "x.java", "", "x.java", "x", "."},
		{"another class than the file", "Test.java", "class Solution " + main, "Test.java", "Solution", "."},
		{"the file's class", "Test.java", "class A " + main + " class Test " + main, "Test.java", "Test", "."},
		{"a public class of another name", "dir/Test.java", "class A {} public final class B " + main, "dir/B.java", "B", "dir"},
		{"public after the main class", "Test.java", "class A " + main + " public interface B {}", "B.java", "A", "."},
		{"a comment", "Test.java", "/* public class Old {} */ // class X " + main + "\nclass S " + main, "Test.java", "S", "."},
		{"strings", "T.java", `class S { String s = "\"class A { public static void main(String[] a) {}"; char c = '"', d = '\''; ` + main[1:], "T.java", "S", "."},
		{"a text block", "T.java", "class S { String s = \"\"\"\n } \" public class X { \\\"\"\" }\"\"\"; " + main[1:], "T.java", "S", "."},
		{"an unclosed string", "T.java", "class S { String s = \"a\n; " + main[1:], "T.java", "S", "."},
		{"a package", "App.java", "package com.example;\npublic class App " + main, "App.java", "com.example.App", "."},
		{"a package in its directory", "src/com/example/App.java", "package com . example ; class App " + main, "src/com/example/App.java", "com.example.App", "src"},
		{"a package at the root", "com/example/App.java", "@Deprecated package com.example; class App " + main, "com/example/App.java", "com.example.App", "."},
		{"a package elsewhere", "src/App.java", "package com.example; class App " + main, "src/App.java", "com.example.App", "src"},
		{"a byte order mark", "T.java", "\ufeffpublic class S " + main, "S.java", "S", "."},
		{"varargs", "T.java", "class A {} class S { static public void main(String... args) {} }", "T.java", "S", "."},
		{"final arguments", "T.java", "class A {} class S { public static final synchronized void main(final java.lang.String args[]) throws Exception {} }", "T.java", "S", "."},
		{"annotated", "T.java", "@A(x = {1}, y = @B(\"}\")) @com.x.C class S { @SuppressWarnings({\"unchecked\", \"class X {\"}) public static void main(@N String[] a) {} }", "T.java", "S", "."},
		{"an interface", "T.java", "class A {} interface I { static void main(String[] a) {} }", "T.java", "I", "."},
		{"an enum", "T.java", "enum E { A { void f() {} }, B(\"x\"); public static void main(String[] a) {} }", "T.java", "E", "."},
		{"a record", "T.java", "public record R<T>(int x, @A({1}) T y) implements I { public static void main(String[] a) {} }", "R.java", "R", "."},
		{"sealed", "T.java", "public sealed abstract class S permits X " + main + " non-sealed class X extends S {}", "S.java", "S", "."},
		{"an annotation type", "T.java", "public @interface N { int value() default 1; } class S " + main, "N.java", "S", "."},
		{"record as a name", "T.java", "class S { int record = 1; void f(record R) { record(1); var record = 2; } " + main[1:], "T.java", "S", "."},
		{"a class literal", "T.java", "class S { Object o = String.class; { f(int.class); } " + main[1:], "T.java", "S", "."},
		{"nested", "T.java", "class Outer { static class Inner " + main + " interface J {} }", "T.java", "Outer$Inner", "."},
		{"top level before nested", "T.java", "class Outer { static class Inner " + main + main[1:], "T.java", "Outer", "."},
		{"local classes", "T.java", "class A { void f() { class main { void main(String[] a) {} } record R(int x) {} } } class S " + main, "T.java", "S", "."},
		{"main of a local record", "T.java", "class A { void f() { record R(int x) " + main + " } } class S { static class N " + main + " }", "T.java", "S$N", "."},
		{"main of an object before the plain one", "T.java", "class A { void main() {} } class S " + main, "T.java", "S", "."},
		{"anonymous classes", "T.java", "class S { Object o = new Object() { public void main(String[] a) {} }; " + main[1:], "T.java", "S", "."},
		{"a lambda", "T.java", "class S { Runnable r = () -> { int x; }; int[] a = {1}; " + main[1:], "T.java", "S", "."},
		{"another main", "T.java", "class A { public static void main() {} int main(int x) { return 1; } } class S " + main, "T.java", "S", "."},
		{"main of an object", "T.java", "class A {} class S { void main() {} }", "T.java", "S", "."},
		{"main without a class", "t.java", "import x.Y; void main() { }", "t.java", "t", "."},
		{"inherited main", "T.java", "class A {} public class T extends Base {}", "T.java", "T", "."},
		{"a name beyond ASCII", "T.java", "public class Größe$1 " + main, "Größe$1.java", "Größe$1", "."},
		{"not Java", "T.java", "}}} class { ( \xff public class", "T.java", "T", "."},
	} {
		java, _ := language.Default().ByID("java")
		p := java.Program(test.file, []byte(test.source))
		if p.File != test.wantFile || p.Class != test.class || p.Directory != test.directory {
			t.Errorf("%s: %s %s in %s", test.name, p.File, p.Class, p.Directory)
		}
	}
	python, _ := language.Default().ByID("python3")
	if p := python.Program("", []byte("public class X {}")); p.File != "main.py" || p.Class != "" {
		t.Errorf("python3: %+v", p)
	}
}

// TestLargeJavaSources checks that a source doesn't make the server allocate much more than its size.
func TestLargeJavaSources(t *testing.T) {
	java, _ := language.Default().ByID("java")
	long := strings.Repeat("a", 251)
	for _, test := range []struct{ before, repeated, after string }{
		{"", "class a{", ""}, {"", "public class " + long + "{", ""}, {"", "(", ""}, {"void main(", "[ ", ""}, {"package a", " a", ";"},
		{"", "@a(b ", ""}, {"class A{", "a b ", ""}, {"class A{", "record a(b", ""}, {"", "void main(){}", ""},
	} {
		source := []byte(test.before + strings.Repeat(test.repeated, (1<<20)/len(test.repeated)) + test.after)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		p := java.Program("X.java", source)
		runtime.ReadMemStats(&after)
		if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 32<<20 {
			t.Errorf("%.20s: %d MiB", test.before+test.repeated, allocated>>20)
		}
		if len(p.Class) > 300 || len(p.File) > 300 {
			t.Errorf("%.20s: a class of %d bytes in a file of %d", test.before+test.repeated, len(p.Class), len(p.File))
		}
	}
}

// TestJavaProgramOfOwnRecipes: an operator's recipe of Java has another id.
func TestJavaProgramOfOwnRecipes(t *testing.T) {
	r := language.Recipe{ID: "java21", FileName: "Main.java"}
	if p := r.Program("", []byte("public class A {}")); p.File != "A.java" || p.Class != "A" {
		t.Errorf("%+v", p)
	}
}

func FuzzJavaProgram(f *testing.F) {
	java, _ := language.Default().ByID("java")
	f.Add("package a.b; @X(\"(\") public class A { /* */ record R(int x) {} }")
	f.Add("\"\"\" ' \\")
	f.Fuzz(func(t *testing.T, source string) {
		if p := java.Program("a/X.java", []byte(source)); p.File == "" || p.Class == "" || p.Directory == "" {
			t.Errorf("%+v", p)
		}
	})
}
