package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"
)

// output is the flag -o.
type output struct {
	format  string
	formats []string
}

// Formats of -o. Without -o a table is printed.
const (
	formatJSON = "json"
	formatYAML = "yaml"
	formatName = "name"
)

// addOutput adds -o with these formats.
func addOutput(cmd *cobra.Command, formats ...string) *output {
	o := &output{formats: formats}
	cmd.Flags().VarP(o, "output", "o", "output format: "+strings.Join(formats, ", ")+"; empty: text for people")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // fails only for an unknown flag
	return o
}

// String returns the value of the flag.
func (o *output) String() string { return o.format }

// Type is the name of the value in --help.
func (*output) Type() string { return "format" }

// Set refuses an unknown format.
func (o *output) Set(format string) error {
	if !slices.Contains(o.formats, format) {
		return fmt.Errorf("%q is not one of %s", format, strings.Join(o.formats, ", "))
	}
	o.format = format
	return nil
}

// named is what can be printed by -o name.
type named interface{ names() []string }

// write prints a value: as text, or in the format of the flag.
func (o *output) write(to io.Writer, value any, text func(io.Writer) error) error {
	switch o.format {
	case formatJSON:
		return writeJSON(to, value)
	case formatYAML:
		return writeYAML(to, value)
	case formatName:
		if value, ok := value.(named); ok {
			for _, name := range value.names() {
				fmt.Fprintln(to, name)
			}
		}
		return nil
	}
	return text(to)
}

func writeJSON(to io.Writer, value any) error {
	encoder := json.NewEncoder(to)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "    ")
	return encoder.Encode(value)
}

// writeYAML writes JSON, which is YAML too, of a value with characters for which YAML has no exact form that is safe on a terminal.
func writeYAML(to io.Writer, value any) error {
	encoded, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if strings.ContainsFunc(string(encoded), unsafe) { // also what yaml refuses to read or changes
		return writeJSON(to, value)
	}
	text, err := yaml.JSONToYAML(encoded)
	if err != nil {
		return err
	}
	if strings.ContainsFunc(string(text), func(r rune) bool { return r != '\n' && unsafe(r) }) {
		return writeJSON(to, value)
	}
	_, err = to.Write(text)
	return err
}

// Names of kinds in -o name.
const (
	merchantKind = "merchant.merchant-operator.io"
	apiKeyKind   = "apikey.merchant-operator.io"
)

// newTable aligns columns as kubectl does. Cells end with a tab.
func newTable(to io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(to, 0, 0, 3, ' ', 0) }

// row writes the cells of a table.
func row(table io.Writer, cells ...string) {
	for i := range cells {
		cells[i] = inline(cells[i])
	}
	fmt.Fprintln(table, strings.Join(cells, "\t"))
}

// none is a cell without a value.
const none = "<none>"

// ago is the age of a time as kubectl prints it.
func ago(then *metav1.Time, now time.Time) string {
	if then.IsZero() {
		return none
	}
	return duration.HumanDuration(now.Sub(then.Time))
}

// until is the time that is left, "past" after that.
func until(end *metav1.Time, now time.Time) string {
	switch {
	case end.IsZero():
		return none
	case !now.Before(end.Time):
		return "past"
	}
	return duration.HumanDuration(end.Sub(now))
}

// plural is a number of things.
func plural(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
