package terminal

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// hostile are texts that a terminal obeys, or that show another text than they are.
var hostile = map[string]string{
	"clipboard (OSC 52)": "a\x1b]52;c;cm0gLXJmIC8=\x07b", "clear screen": "a\x1b[2Jb", "C1 control": "a\u009b2Jb", "NEL": "a\u0085b", "carriage return": "a\rb",
	"backspace": "a\bb", "DEL": "a\x7fb", "right to left": "a\u202eb", "isolate": "a\u2066b", "mark": "a\u200fb", "line separator": "a\u2028b", "BOM": "a\ufeffb",
}

func TestEscapingWriter(t *testing.T) {
	for name, text := range hostile {
		t.Run(name, func(t *testing.T) {
			for size := 1; size <= len(text); size++ { // whatever a write cuts in two
				var out strings.Builder
				w := Escape(&out)
				for rest := text; rest != ""; {
					part := rest[:min(size, len(rest))]
					if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
						t.Fatal(n, err)
					}
					rest = rest[len(part):]
				}
				var back string
				if err := json.Unmarshal([]byte(`"`+out.String()+`"`), &back); err != nil || back != text || strings.ContainsFunc(out.String(), unsafe) {
					t.Errorf("%q becomes %q", text, out.String())
				}
			}
		})
	}
	for name, text := range map[string]string{"lines and tabs": "a\tb\nc\n", "CSV": "a,b\r\n", "languages": "Käse, קפה, قهوة, ☕, 👩‍🍳, e\u0301", "a backslash": `C:\u001b`} {
		var out strings.Builder
		if _, err := io.WriteString(Escape(&out), text); err != nil || out.String() != text {
			t.Errorf("%s: %q, %v", name, out.String(), err)
		}
	}
	var out strings.Builder
	_, _ = Escape(&out).Write([]byte("a\x9b2Jb\n"))
	if out.String() != `a\u009b2Jb`+"\n" {
		t.Errorf("a byte that is no UTF-8: %q", out.String())
	}
}

// JSON and YAML have what was put in, and no character that a terminal obeys.
func TestOutput_Hostile(t *testing.T) {
	type Named struct {
		Text string `json:"text"`
	}
	for name, text := range hostile {
		for format, decode := range map[string]func([]byte, any) error{
			FormatJSON: json.Unmarshal,
			FormatYAML: func(text []byte, into any) error { return yaml.Unmarshal(text, into) },
		} {
			t.Run(name+"/"+format, func(t *testing.T) {
				var out strings.Builder
				if err := (&Output{Format: format}).Write(Escape(&out), Named{text}, nil); err != nil {
					t.Fatal(err)
				}
				var back Named
				if err := decode([]byte(out.String()), &back); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(Named{text}, back); diff != "" || strings.ContainsFunc(strings.ReplaceAll(out.String(), "\n", ""), unsafe) {
					t.Errorf("%q: %s", out.String(), diff)
				}
			})
		}
	}
}

// A text in a table stays in its cell.
func TestRow_Hostile(t *testing.T) {
	var out strings.Builder
	table := NewTable(&out)
	Row(table, "till", "ok\nother-till   \x1b[2Jready", "a\tb")
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), `till   ok\u000aother-till   \u001b[2Jready   a\u0009b`+"\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
