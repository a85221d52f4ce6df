# The dialect of the prompt of 1.4.9.
load b
set $nfiles = 300
set $mean=128k
define randvar name=$size, type=tabular, min=1k, round=512, randtable={{60,1k,8k},{40,8k,64k}}
set $size.mean = $mean
define process name=p,instances=1 {
  thread name=t,memsize=10m,instances=2 {
    flowop openfile name=open,filesetname=a,fd=1,indexed=$size
    flowop read name=read,fd=1,iosize=$size,random
    flowop closefile name=close,fd=1
  }
}
foreach $x in 1, 2k, "text $mean" { echo "x is $x" }
usage "set \$dir=<dir>, now $dir"
set mode quit firstdone
psrun -10 300
