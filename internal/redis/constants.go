package redis

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Constants are what scripts know of Go: tables by their names, and in each the Lua of each constant by its name. A script names a constant with its
// table, as in "const.MAX_FAILURES", "field.STATUS" or "fields[at.STATUS]". Its value is written in the place of the name when the program starts: real
// tables, which each run would make again, cost creating a session 0.7 us and a payer's read 3 us.
type Constants map[string]map[string]string

// tables are the tables whose constants scripts name.
var tables = []string{"const", "field", "at"}

const (
	capitals = "ABCDEFGHIJKLMNOPQRSTUVWXYZ_"
	letters  = "abcdefghijklmnopqrstuvwxyz0123456789" + capitals
)

// With returns the constants of both. A name that stands for two constants panics: then the program is wrong.
func (c Constants) With(more Constants) Constants {
	all := Constants{}
	for _, constants := range []Constants{c, more} {
		for table, values := range constants {
			if all[table] == nil {
				all[table] = map[string]string{}
			}
			for name, lua := range values {
				if other, twice := all[table][name]; twice && other != lua {
					panic(fmt.Sprintf("%s.%s is both %s and %s", table, name, other, lua))
				}
				all[table][name] = lua
			}
		}
	}
	return all
}

// writeInto returns the source of an operation with the values in the place of the names. A list that is unpacked stands there without its braces.
// A regular expression took most of the time in which the program starts.
func (c Constants) writeInto(operation, source string) string {
	var written strings.Builder
	for {
		before, after, found := strings.Cut(source, ".")
		if !found {
			written.WriteString(source)
			return written.String()
		}
		rest := strings.TrimLeft(after, capitals)
		name, table := strings.TrimSuffix(after, rest), before[len(strings.TrimRight(before, letters)):]
		lua := "."
		if name != "" && slices.Contains(tables, table) {
			var known bool
			if lua, known = c[table][name]; !known {
				panic(fmt.Sprintf("%s names %s.%s, which is no constant", operation, table, name))
			}
			before, after = strings.TrimSuffix(before, table), rest
			if head, unpacked := strings.CutSuffix(before, "unpack("); unpacked && strings.HasPrefix(after, ")") {
				before, after, lua = head, after[1:], strings.Trim(lua, "{}")
			}
		}
		written.WriteString(before)
		written.WriteString(lua)
		source = after
	}
}

// LuaInt returns the Lua of a number.
func LuaInt(n int64) string { return strconv.FormatInt(n, 10) }

// LuaText returns the Lua of a text, which has neither quotes nor line feeds. Escapes such as \t are those of Lua.
func LuaText(text string) string { return "'" + text + "'" }

// LuaTexts returns the Lua of a list of texts.
func LuaTexts(texts ...string) string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = LuaText(text)
	}
	return "{" + strings.Join(quoted, ", ") + "}"
}

// Field is a field of a hash. Scripts name it "field.NAME".
type Field struct{ Name, Field string }

// Fields are fields of a hash. Those that a script reads together come in this order, which gives each its place, "at.NAME".
type Fields []Field

// Names returns the field that each name stands for.
func (f Fields) Names() map[string]string {
	names := map[string]string{}
	for _, field := range f {
		names[field.Name] = LuaText(field.Field)
	}
	return names
}

// Places returns the place that each name stands for, from 1 on.
func (f Fields) Places() map[string]string {
	places := map[string]string{}
	for i, field := range f {
		places[field.Name] = LuaInt(int64(i + 1))
	}
	return places
}

// List returns the Lua of the list of all fields, for HMGET.
func (f Fields) List() string {
	texts := make([]string, len(f))
	for i, field := range f {
		texts[i] = field.Field
	}
	return LuaTexts(texts...)
}
