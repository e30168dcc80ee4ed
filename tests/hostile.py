"""Texts that try to leave the place they are shown in."""

from __future__ import annotations

TEXTS = (
    "<script>document.title = 'owned'</script><img src=x onerror=alert(1)>",
    "</pre></div></article></main><h1 id=owned>owned</h1><style>*{display:none}</style>",
    "<svg onload=alert(1)><a href='javascript:alert(1)'>x</a></svg><iframe src=//evil.example></iframe>",
    '" onmouseover="alert(1)" x=\'1\' `',
    "```\n# heading out of the block\n````\n<b>bold</b>\n`````",
    "~~~\n[click](javascript:alert(1)) ![i](http://evil.example/i.png) <http://evil.example>",
    "a | b\n|---|---|\n| <u>cell</u> | c |",
    "https://evil.example/ www.evil.example mail@evil.example",
    "\u202eleft to right\u2066\u200b\x1b[31mred\x00\x07\u2028next\u0085line\ud800",
    "\x02code\x03 \x04strong\x05 **own marks** {braces} {0} %s",
    "&lt;script&gt; &amp;lt; &#60;b&#62; ]]> --> <!-- <![CDATA[ ?>",
    ":smile: $x^2$ \\(y\\) [^1] - [ ] box",
)
