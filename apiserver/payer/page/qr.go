package page

import (
	"fmt"
	"strconv"

	"rsc.io/qr"
)

// quietZone is the white border of a QR code in modules, as ISO/IEC 18004 requires it.
const quietZone = 4

// Code is a QR code for SVG.
type Code struct {
	// Size is the width and height in modules, with the quiet zone.
	Size int
	// Path is the data of a path with a stroke of one module: a stroke for each run of black modules.
	Path string
}

// NewCode returns the QR code of a text. It can still be read if 15 % of it is damaged (level M).
func NewCode(text string) (Code, error) {
	code, err := qr.Encode(text, qr.M)
	if err != nil {
		return Code{}, fmt.Errorf("encode the QR code: %w", err)
	}
	var path []byte
	for y := range code.Size {
		pen := -1 // where it is in this row
		for x := 0; x < code.Size; x++ {
			if !code.Black(x, y) {
				continue
			}
			if pen < 0 {
				path = fmt.Appendf(path, "M%d %d.5", x+quietZone, y+quietZone)
			} else {
				path = fmt.Appendf(path, "m%d 0", x-pen)
			}
			start := x
			for code.Black(x, y) { // white beyond the end
				x++
			}
			path = strconv.AppendInt(append(path, 'h'), int64(x-start), 10)
			pen = x
		}
	}
	return Code{Size: code.Size + 2*quietZone, Path: string(path)}, nil
}

// Bounds of the width of a QR code, in pixels of CSS. Below, modules of a long payload are too small for a camera.
const (
	MinCodeWidth     = 96
	DefaultCodeWidth = 320
	MaxCodeWidth     = 2048
)

// SVG returns the code as a document of its own, black on white whatever is around it.
func (c Code) SVG(width int) []byte {
	return fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" shape-rendering="crispEdges">`+
		`<path fill="#fff" d="M0 0h%dv%dH0z"/><path stroke="#000" d="%s"/></svg>`+"\n", width, width, c.Size, c.Size, c.Size, c.Size, c.Path)
}
