package redis

import "testing"

// A name becomes its value, and a list that is unpacked its items.
func TestConstants(t *testing.T) {
	fields := Fields{{Name: "STATUS", Field: "s"}, {Name: "RECORD", Field: "f"}}
	constants := Constants{"const": {"FIELDS": fields.List(), "MOST": LuaInt(20)}, "field": fields.Names()}.With(Constants{"at": fields.Places()})
	for source, want := range map[string]string{
		"call('HMGET', key, unpack(const.FIELDS))": "call('HMGET', key, 's', 'f')",
		"#const.FIELDS + const.MOST":               "#{'s', 'f'} + 20",
		"change[field.STATUS] = fields[at.RECORD]": "change['s'] = fields[2]",
		"constant.most = field_at.place":           "constant.most = field_at.place",
		"no_const.MOST, string.MOST, 'at', 1.5":    "no_const.MOST, string.MOST, 'at', 1.5",
		"unpack(const.FIELDS, 1, const.MOST)":      "unpack({'s', 'f'}, 1, 20)",
	} {
		if got := constants.writeInto("example", source); got != want {
			t.Errorf("%s: %s, want %s", source, got, want)
		}
	}
}

// One name for two values fails when the program starts.
func TestConstants_Twice(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("nothing failed")
		}
	}()
	Constants{"const": {"MOST": LuaInt(1)}}.With(Constants{"const": {"MOST": LuaInt(2)}})
}
