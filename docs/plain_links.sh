#!/bin/sh
# Links that HTML pages cannot follow become plain text: those to headings, which Doxygen before 1.9.8
# does not know by name, and those to files that are no pages. Doxygen links the names of headers.
exec sed -E 's/\]\(([^)#]*\.md|http[^)]*)(#[^)]*)?\)/]\x01\1)/g; s/\[([^]]*)\]\([^)]*\)/\1/g; s/\x01/(/g' "$1"
